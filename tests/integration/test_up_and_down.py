"""`herdsman up` and `herdsman down`: what is said at the start, what cannot be started, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from tests.support.api_server import served
from tests.support.shell import Shell
from tests.support.up_command import until, up


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.environment |= {"FAKE_GPUS": "1", "MIN_ACTIVE_GPUS": "1", "MAX_ACTIVE_GPUS": "1"}
    return shell


def announced(shell: Shell) -> dict[str, Any]:
    return json.loads((shell.directory / ".local/state/herdsman/api").read_text())


def labelled(lines: list[str], what: str) -> str:
    return next(line.split(maxsplit=1)[1].strip() for line in lines if line.startswith(f"{what} "))


def test_the_greeting_has_all_that_a_newcomer_needs(shell: Shell) -> None:
    with up(shell) as greeting:
        url, token = labelled(greeting, "api"), labelled(greeting, "token")
        assert labelled(greeting, "page") == f"{url}/#token={token}"
        assert labelled(greeting, "database").startswith("SQLite ")
        assert labelled(greeting, "gpus").startswith("simulating 1 (FAKE_GPUS)")
        assert labelled(greeting, "next").endswith("herdsman submit demo --count 20")
        assert "herdsman top" in greeting[-2]
        assert "herdsman chaos kill-worker" in greeting[-1]
        assert greeting.read_line().startswith("workers   1 ready after ")
        assert "active" in shell.said("workers")
    with up(shell) as again:
        assert labelled(again, "page").endswith("/"), "a token that is not new is not shown"
        assert not any(line.startswith("token ") for line in again)


def test_no_more_workers_are_asked_for_than_this_machine_has_gpus(shell: Shell) -> None:
    """They used to be tried, and each try was left behind as a worker that had failed."""
    shell.environment |= {"MAX_ACTIVE_GPUS": "10", "TASKS_PER_GPU_THRESHOLD": "1"}
    with up(shell) as greeting:
        assert labelled(greeting, "fleet").startswith("local, 1 workers (one for each GPU)")
        shell.said("submit", "demo", "--count", "20", "--payload", '{"seconds": 0.2}')
        full = "every GPU of this machine has its worker"
        until(lambda: full in shell.said("why", "pool", "default"))
        until(lambda: shell.said("jobs", "--status", "done", "-o", "json").count('"job_id"') >= 10)
        assert "Spawn failed" not in shell.said("workers")


def test_a_second_up_says_what_runs_and_ends_well(shell: Shell) -> None:
    with up(shell) as greeting:
        there = announced(shell)
        said = shell.said("up")
        assert f"herdsman up already runs here, as process {there['process']['pid']}" in said
        assert labelled(said.splitlines(), "api") == labelled(greeting, "api")
        assert "herdsman down" in said
        other = shell("up", DATABASE_URL=f"sqlite:///{shell.directory}/other.db")
        assert other.returncode == 4
        assert "stop it with herdsman down, or give this one a LOCAL_STATE_DIR" in other.stderr
        assert announced(shell) == there, "the first is still the one that is found"
        assert shell("jobs").returncode == 0


def test_what_a_killed_one_has_left_behind_keeps_nobody_from_starting(shell: Shell) -> None:
    with up(shell, "--fake-gpus", "1"):
        left = announced(shell)
    file = shell.directory / ".local/state/herdsman/api"
    file.write_text(json.dumps(left))
    file.chmod(0o600)
    assert shell.said("down").startswith("nothing to stop")
    left["process"]["pid"], left["process"]["started_ticks"] = os.getpid(), 1
    file.write_text(json.dumps(left))
    assert shell.said("down").startswith("nothing to stop"), "we are not the process that is meant"
    with up(shell):
        assert announced(shell)["url"] != left["url"]


def test_a_port_that_is_taken(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = shell.refused("up", "--port", str(port))
    assert said == (
        f"herdsman: port {port} of 127.0.0.1 cannot be taken: Address already in use;"
        " set another API_PORT, or let herdsman up --port 0 take any that is free"
    )
    assert not (shell.directory / ".local/state/herdsman/api").exists()


def test_handlers_that_cannot_be_loaded_are_told_before_anything_is_started(shell: Shell) -> None:
    (shell.directory / "slip.py").write_text("import nowhere\n")
    run = shell("up", "--port", "0", "--module", "slip")
    assert run.returncode == 2
    assert run.stderr.startswith("herdsman: the handlers cannot be loaded:\n")
    assert run.stderr.endswith("import nowhere\nModuleNotFoundError: No module named 'nowhere'\n")
    assert not (shell.directory / ".local/state/herdsman/api").exists()


@pytest.mark.parametrize("setting", ["DATABASE_URL", "LOCAL_STATE_DIR"])
def test_a_directory_that_cannot_be_written_to(shell: Shell, setting: str) -> None:
    place = "/proc/herd" if setting == "LOCAL_STATE_DIR" else "sqlite:////proc/herd/herd.db"
    run = shell("up", "--port", "0", **{setting: place})
    assert run.returncode == 2
    assert "/proc/herd cannot be written to: " in run.stderr
    assert f"or set {setting} to another directory" in run.stderr


def test_a_disk_without_room(shell: Shell) -> None:
    """A disk of one megabyte, in a world of our own."""
    disk = shell.directory / "disk"
    disk.mkdir()
    inside = f"mount -t tmpfs -o size=1m tmpfs {disk} && exec {sys.executable} -m herdsman up --port 0"
    run = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", inside],
        cwd=shell.directory,
        env={**shell.environment, "DATABASE_URL": f"sqlite:///{disk}/herd.db"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 2, run.stderr
    assert f"MB are free on the disk of {disk}, 16 MB are needed" in run.stderr
    assert "free some, or set DATABASE_URL to a directory with more space" in run.stderr


def test_a_database_of_a_newer_version(shell: Shell) -> None:
    assert shell("db", "init").returncode == 0
    engine = create_engine(shell.environment["DATABASE_URL"])
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    run = shell("up", "--port", "0")
    assert run.returncode == 6
    assert "schema 9999, which is newer than this version of Herdsman: upgrade Herdsman" in run.stderr


def test_down_lets_a_job_finish_and_says_what_became_of_it(shell: Shell) -> None:
    with up(shell) as greeting:
        job = shell.said("submit", "demo", "--payload", '{"seconds": 20}').strip()
        until(lambda: shell.json("job", job)["status"] == "running")
        assert "1 job running" in shell.said("down", "--dry-run")
        refused = shell("down")
        assert refused.returncode == 1, "nobody was there to say yes"
        assert shell.json("job", job)["status"] in ("running", "done")
        said = shell.said("down", "-y")
    assert f"{job} is done" in said
    assert "every job is kept" in said
    assert "every job is kept in the database: 1 done" in greeting[-1]
    assert shell.said("down").startswith("nothing to stop")


def test_down_now_has_jobs_given_back(shell: Shell) -> None:
    with up(shell):
        job = shell.said("submit", "demo", "--payload", '{"seconds": 300}').strip()
        until(lambda: shell.json("job", job)["status"] == "running")
        said = shell.said("down", "-y", "--now")
    assert f"{job} went back to the queue" in said
    with served(shell):
        shown = shell.json("job", job)
    assert (shown["status"], shown["interruptions"]) == ("pending", 1)


def test_down_leaves_a_replica_of_the_control_plane_alone(shell: Shell) -> None:
    assert shell("db", "init").returncode == 0
    with subprocess.Popen(
        [sys.executable, "-m", "herdsman", "serve"],
        cwd=shell.directory,
        env={**shell.environment, "API_PORT": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            until((shell.directory / ".local/state/herdsman/api").exists)
            refused = shell("down", "-y")
            assert refused.returncode == 4
            assert f"process {process.pid} is herdsman serve, not herdsman up" in refused.stderr
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
