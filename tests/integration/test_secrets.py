"""Secrets stay with the programs that need them: neither handlers nor the list of processes tell them."""

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from herdsman.errors import InvalidSettings
from herdsman.settings.environment import harmless_environment
from herdsman.worker.handler_process import Answer, HandlerChild
from herdsman.worker.registry import Sources
from herdsman.worker.sandbox import Sandbox
from tests.support.shell import Shell
from tests.support.up_command import until, up

HERE = Path(__file__).parents[2]
CONNECTORS = """
[remote]
connector = "http"
sync = true

[remote.headers]
Authorization = "Bearer {secret}"

[remote.submit]
method = "POST"
url = "http://127.0.0.1:9/jobs"
"""
BECOME = """
if sys.argv[1] == "nobody":
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a process that somebody of that name has started
"""
KEEPS = f"""
import ctypes, os, sys
from herdsman.settings.environment import keep_secrets
{BECOME}
keep_secrets(["hidden words"])
print("ready", flush=True)
sys.stdin.read()
"""
LOOKS = f"""
import ctypes, os, sys
{BECOME}
print(open(f"/proc/{{sys.argv[2]}}/environ").read())
"""


def canary() -> str:
    return "CANARY" + secrets.token_hex(8)


@pytest.mark.timeout(180)
def test_a_handler_that_reads_all_of_proc_finds_no_secret(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "connectors.toml").write_text(CONNECTORS.format(secret=canary()))
    (tmp_path / "store-secret").write_text(canary())
    shell.environment |= {
        "ADMIN_API_KEY": canary() + canary(),
        "WORKER_CONNECTORS_FILE": str(tmp_path / "connectors.toml"),
        "RESULT_STORE": "s3://bucket/results",
        "RESULT_S3_ENDPOINT": "http://127.0.0.1:9",
        "RESULT_S3_KEY_ID": "key",
        "RESULT_S3_SECRET_FILE": str(tmp_path / "store-secret"),
        "WORKER_MODULES": "tests.integration.worker.spying",
        "PYTHONPATH": str(HERE),
    }
    with up(shell, "--fake-gpus", "1", load=True):  # whoever forks it for a test keeps no secrets
        job = shell.said("submit", "spy").strip()
        until(lambda: shell.json("job", job)["status"] in ("done", "dead_letter"))
        found = shell.json("job", job)
    told = cast("dict[str, Any]", found["result"])
    assert told, found
    assert told["read"], "it could not even read its own memory"
    family = {f"/proc/{pid}/" for pid in told["family"]}
    leaks = [
        (path, secret)
        for path, secret in told["found"]
        if secret.startswith("CANARY") or any(path.startswith(each) for each in family)
    ]
    assert leaks == [], leaks


@pytest.mark.parametrize("as_root", [True, False])
def test_what_keeps_its_secrets_shows_them_to_no_other_process(*, as_root: bool) -> None:
    if os.geteuid() != 0 and as_root:
        pytest.skip("only root may start what runs as root")
    whom = "root" if as_root or os.geteuid() != 0 else "nobody"
    environment = {"A_SECRET": canary(), "HARMLESS": "yes", "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", KEEPS, whom, "hidden words", "other words"]
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None and keeper.stdin is not None
        assert keeper.stdout.readline() == "ready\n"
        look = [sys.executable, "-I", "-c", LOOKS, whom, str(keeper.pid)]
        other = subprocess.run(look, capture_output=True, text=True)
        shown = Path(f"/proc/{keeper.pid}/cmdline").read_bytes()
        keeper.stdin.close()
    # Root may read on: what it is shown was overwritten.
    assert ("HARMLESS=yes" in other.stdout) if as_root else ("PermissionError" in other.stderr)
    assert "CANARY" not in other.stdout
    assert b"hidden words" not in shown
    assert b"other words" in shown


def only(monkeypatch: pytest.MonkeyPatch, *tools: str) -> None:
    """As on a machine that has no others."""
    there = {tool: shutil.which(tool) for tool in tools}
    which: Callable[[str], str | None] = there.get
    monkeypatch.setattr(shutil, "which", which)


@pytest.mark.parametrize("tool", ["bwrap", "unshare"])
def test_in_a_sandbox_a_handler_sees_its_workspace_and_nothing_of_its_supervisor(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, tool)
    state, settings = tmp_path / "state", tmp_path / ".env"
    state.mkdir()
    (state / "admin-token").write_text(canary())
    settings.write_text(canary())
    sources = Sources(modules=("tests.integration.worker.hiding",), paths=(str(HERE),))
    child = HandlerChild(sources, harmless_environment(), sandbox=Sandbox(hidden=(state, settings)))
    try:
        job = {"job_id": "j", "attempt": 1, "token": 1, "service_job_id": None, "seconds": None}
        payload = {"places": [str(state)], "files": [str(settings)]}
        job |= {"payload": payload, "workspace": f"{child.home}/w"}
        child.send({"run": 1, "until": time.monotonic() + 60})
        child.send({"run": 1, "type": "look_around", "jobs": [job]})
        answers: list[Answer] = []
        while not any(answer.get("job") for answer in answers):
            answers += child.listen(0.1)
            assert not child.ended(), answers
    finally:
        child.close()
    (told,) = [answer for answer in answers if answer.get("job")]
    assert told["result"]["places"] == {str(state): []}, told
    assert told["result"]["files"] == {str(settings): ""}
    assert told["result"]["processes"] <= 4
    assert not Path(f"/proc/{child.pid}").exists()
    assert not Path(f"{child.home}/w").exists()


def test_without_a_tool_for_it_no_sandbox_is_pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    with pytest.raises(InvalidSettings, match="needs bubblewrap"):
        Sandbox(hidden=()).words(Path("/nowhere"))
