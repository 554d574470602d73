"""`herdsman connectors` and `herdsman run comfyui`, as a person meets them."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from herdsman.testing.fakes.comfyui import FakeComfyUI, Fault
from herdsman.testing.fakes.comfyui.nodes import png
from tests.support.api_server import served
from tests.support.shell import CANARY, Shell

WORKFLOW: dict[str, Any] = {
    "3": {
        "class_type": "KSampler",
        "inputs": {
            "seed": 5,
            "steps": 3,
            "cfg": 8.0,
            "sampler_name": "euler",
            "scheduler": "normal",
            "denoise": 1.0,
            "model": ["4", 0],
            "positive": ["6", 0],
            "negative": ["6", 0],
            "latent_image": ["5", 0],
        },
    },
    "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}},
    "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a herd", "clip": ["4", 1]}},
    "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
    "9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "herd", "images": ["8", 0]}},
}
COPY: dict[str, Any] = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "nothing.png"}},
    "2": {"class_type": "SaveImage", "inputs": {"filename_prefix": "copy", "images": ["1", 0]}},
}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def comfyui() -> Iterator[FakeComfyUI]:
    with FakeComfyUI() as fake:
        yield fake


def test_a_service_that_is_fit_is_shown_with_all_that_it_says(shell: Shell, comfyui: FakeComfyUI) -> None:
    said = shell.said("connectors", "check", comfyui.url)
    rows = dict(line.split(maxsplit=1) for line in said.splitlines())
    assert rows["service"] == f"comfyui at {comfyui.url}"
    assert rows["healthy"] == "yes"
    assert rows["version"] == "0.7.0, new enough"
    assert rows["device"].endswith("24576 of 24576 MB free")
    assert rows["queue"] == "0 waiting or running"
    assert rows["/api/jobs"] == "available"
    assert rows["socket"] == "works"
    assert re.fullmatch(r"version in \d+ ms, jobs in \d+ ms, socket in \d+ ms", rows["answered"])
    assert comfyui.wait_for(lambda: comfyui.sockets == 0, 30), "its socket was left open"
    assert comfyui.runs == 0


def test_the_same_as_json(shell: Shell, comfyui: FakeComfyUI) -> None:
    said: Any = shell.json("connectors", "check", comfyui.url)
    assert said["fit"] is True
    assert said["version"] == "0.7.0"
    assert [each["vram_total_mb"] for each in said["devices"]] == [24576]
    assert set(said["seconds"]) == {"version", "jobs", "socket"}


def test_an_older_service_does_without_the_route_for_jobs(shell: Shell) -> None:
    with FakeComfyUI(version="0.3.45") as old:
        said = shell.said("connectors", "check", old.url)
    assert "0.3.45, new enough" in said
    assert "not available: /queue and /history are used instead" in said


def test_a_service_that_is_too_old_is_told_to_be_updated(shell: Shell) -> None:
    with FakeComfyUI(version="0.3.44") as old:
        done = shell("connectors", "check", old.url)
    assert done.returncode == 1
    assert "ComfyUI 0.3.44 is too old" in done.stderr
    assert "update it" in done.stderr


@pytest.mark.parametrize(
    ("fault", "at", "told"),
    [
        (Fault.HTML, "/system_stats", "and a page titled"),
        (Fault.UNAUTHORIZED, None, "with 401 "),
        (Fault.TOO_MANY, None, "with 429 "),
        (Fault.SERVER_ERROR, None, "with 500 "),
        (Fault.HTML, "/ws", "the socket of ComfyUI"),
        (Fault.UNAUTHORIZED, "/ws", "the option headers must hold"),
    ],
)
def test_a_service_that_is_unfit_is_one_sentence(
    shell: Shell, comfyui: FakeComfyUI, fault: Fault, at: str | None, told: str
) -> None:
    comfyui.add_fault(fault, times=None, at=at)
    done = shell("connectors", "check", comfyui.url)
    assert (done.returncode, told in done.stderr) == (1, True), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "healthy     no" in done.stdout
    assert comfyui.struck(fault) >= 1


def test_a_service_that_says_nothing_is_not_waited_for_long(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        done = shell("connectors", "check", f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert done.returncode == 1
    assert "did not answer GET /system_stats within 5 s" in done.stderr
    assert time.monotonic() - began < 30


def test_json_of_a_service_that_is_away_says_why(shell: Shell) -> None:
    done = shell("connectors", "check", "http://127.0.0.1:1", "-o", "json")
    said = json.loads(done.stdout)
    assert (done.returncode, said["fit"], said["version"]) == (1, False, None)
    assert "could not be reached at http://127.0.0.1:1" in said["fault"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ftp://example.com"], "must be http://HOST:PORT or https://HOST"),
        (["http://"], "must be http://HOST:PORT or https://HOST"),
        ([f"http://me:{CANARY}@example.com"], "must not hold a user or a password"),
        (["nothing"], "'nothing' is neither a URL"),
        ([], "set COMFYUI_URL"),
        (
            ["http://127.0.0.1:1", "--kind", "nothing"],
            "there is no connector 'nothing'; installed are: comfyui",
        ),
    ],
)
def test_what_cannot_be_checked_is_refused_with_the_next_step(shell: Shell, words: list[str], told: str) -> None:
    assert told in shell.refused("connectors", "check", *words)
    assert shell("connectors", "check", *words).returncode == 2


def test_without_a_url_the_one_of_the_settings_is_checked(shell: Shell, comfyui: FakeComfyUI) -> None:
    done = shell("connectors", "check", COMFYUI_URL=comfyui.url)
    assert (done.returncode, f"comfyui at {comfyui.url}" in done.stdout) == (0, True)


def test_a_type_is_checked_with_the_options_of_its_file(shell: Shell, comfyui: FakeComfyUI) -> None:
    connectors = shell.directory / "connectors.toml"
    connectors.write_text(
        f'[portrait]\nconnector = "comfyui"\nurl = "{comfyui.url}"\nheaders = {{ Authorization = "{CANARY}" }}\n'
    )
    shell.environment["WORKER_CONNECTORS_FILE"] = str(connectors)
    assert f"comfyui at {comfyui.url}" in shell.said("connectors", "check", "portrait")
    listed: Any = shell.json("connectors")
    assert listed["types"] == [{"type": "portrait", "connector": "comfyui", "where": comfyui.url}]
    for words in (["connectors"], ["connectors", "list"], ["connectors", "check", "portrait"]):
        assert CANARY not in shell.said(*words)


def test_the_connectors_that_are_installed_are_listed(shell: Shell) -> None:
    listed: Any = shell.json("connectors", "list")
    ours = {each["name"]: each["fault"] for each in listed["installed"]}
    assert {name: ours[name] for name in ("comfyui", "http", "python")} == dict.fromkeys(("comfyui", "http", "python"))
    assert listed["types"] == []
    assert "set COMFYUI_URL or WORKER_CONNECTORS_FILE" in shell.said("connectors")


def test_a_workflow_is_run_and_its_pictures_are_saved(shell: Shell, comfyui: FakeComfyUI) -> None:
    _write(shell, "workflow.json", WORKFLOW)
    with _up(shell, comfyui):
        first = shell("run", "comfyui", "workflow.json", "--set", "6.text=two herds", "--job-id", "one")
        assert (first.returncode, first.stdout) == (0, "herd_00001_.png\n"), first.stderr
        picture = (shell.directory / "herd_00001_.png").read_bytes()
        assert picture == comfyui.content("herd_00001_.png")

        # The same job once more is the same file; another one is beside it, and as JSON it tells where.
        again = shell("run", "comfyui", "workflow.json", "--set", "6.text=two herds", "--job-id", "one")
        assert again.stdout == first.stdout
        other = shell("run", "comfyui", "workflow.json", "--job-id", "another-job", "-o", "json")
        (output,) = json.loads(other.stdout)["result"]["outputs"]
        assert comfyui.runs == 2

        (shell.directory / output["path"]).unlink()
        (shell.directory / output["path"]).write_bytes(b"somebody's own")
        kept = shell("run", "comfyui", "workflow.json", "--job-id", "another-job", "--save-to", ".")
        assert kept.stdout == f"ther-job-{output['name']}\n"
        assert (shell.directory / output["path"]).read_bytes() == b"somebody's own"


def test_a_file_of_this_machine_reaches_the_workflow(shell: Shell, comfyui: FakeComfyUI) -> None:
    _write(shell, "copy.json", COPY)
    (shell.directory / "cat.png").write_bytes(png("a cat"))
    with _up(shell, comfyui):
        done = shell("run", "comfyui", "copy.json", "--file", "1.image=cat.png", "--save-to", "new/place")
    assert (done.returncode, done.stdout) == (0, "new/place/copy_00001_.png\n"), done.stderr
    assert ("POST", "/upload/image") in comfyui.requests
    saved = (shell.directory / "new/place/copy_00001_.png").read_bytes()
    assert saved == comfyui.content("copy_00001_.png")


def test_over_http_the_server_gives_the_pictures_out(shell: Shell, comfyui: FakeComfyUI) -> None:
    _write(shell, "workflow.json", WORKFLOW)
    with _up(shell, comfyui) as url:
        shell.environment["API_URL"] = url
        # Another machine has another store: what it saves, it has from the server.
        shell.environment["RESULT_STORE"] = str(shell.directory / "elsewhere")
        done = shell("run", "comfyui", "workflow.json")
    assert (done.returncode, done.stdout) == (0, "herd_00001_.png\n"), done.stderr
    assert (shell.directory / "herd_00001_.png").read_bytes() == comfyui.content("herd_00001_.png")
    assert not (shell.directory / "elsewhere").exists()


def test_a_workflow_that_comfyui_refuses_fails_with_the_node(shell: Shell, comfyui: FakeComfyUI) -> None:
    _write(shell, "workflow.json", WORKFLOW)
    with _up(shell, comfyui):
        done = shell("run", "comfyui", "workflow.json", "--set", "3.steps=0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "(user_error)" in done.stderr
    assert "KSampler" in done.stderr
    assert not list(shell.directory.glob("*.png"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set", "3.sed=1"], "did you mean '3.seed'?"),
        (["--set", "steps=1"], "has no node for 'steps'"),
        (["--file", "6.text=no.png"], "there is no file 'no.png'"),
        (["--save-to", "workflow.json"], "is not a directory"),
        (["--payload", '{"a": 1}'], "leave one out"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_submitted(shell: Shell, words: list[str], told: str) -> None:
    _write(shell, "workflow.json", WORKFLOW)
    with served(shell):
        assert told in shell.refused("run", "comfyui", "workflow.json", *words)
        assert shell.json("jobs")["jobs"] == []


def test_other_types_take_no_workflow(shell: Shell) -> None:
    assert "give its input with --payload" in shell.refused("run", "demo", "workflow.json")
    assert "give its input with --payload" in shell.refused("run", "demo", "--set", "6.text=a")


def _write(shell: Shell, name: str, workflow: object) -> None:
    (shell.directory / name).write_text(json.dumps(workflow))


@contextmanager
def _up(shell: Shell, comfyui: FakeComfyUI) -> Generator[str]:
    """A herd on this machine whose only worker speaks to that ComfyUI; the address of its API."""
    with subprocess.Popen(
        [sys.executable, "-m", "herdsman", "up", "--port", "0", "--fake-gpus", "1"],
        cwd=shell.directory,
        env={
            **shell.environment,
            "COMFYUI_URL": comfyui.url,
            "MIN_ACTIVE_GPUS": "1",
            "MAX_ACTIVE_GPUS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        line, url = "", ""
        try:
            while "Ctrl-C" not in line:
                assert process.poll() is None
                line = process.stdout.readline()
                url = line.split()[1] if line.startswith("api ") else url
            yield url
        finally:
            process.send_signal(signal.SIGINT)
            process.stdout.read()
        assert process.wait(60) == 0
