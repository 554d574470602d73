"""A handler's process and its supervisor: it dies with it, and gets none of its secrets."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from herdsman.settings.environment import harmless_environment, visible_gpus
from herdsman.worker.handler_process import HandlerChild
from tests.integration.worker.worker_programs import HANDLERS, eventually, runs

COMMAND = "'echo $$ > $FILE; exec sleep 600'"
ORPHANED = """
import os, time
from dataclasses import replace
from herdsman.worker.handler_process import HandlerChild
from tests.integration.worker.worker_programs import HANDLERS
child = HandlerChild(HANDLERS, dict(os.environ))
job = {"job_id": "j", "payload": None, "attempt": 1, "token": 1, "service_job_id": None, "seconds": None, "workspace": os.environ["TMPDIR"] + "/w"}
child.send({"run": 1, "type": "ignores_cancel", "jobs": [job]})
child.send({"run": 1, "until": time.monotonic() + 600})
while not any("progress" in answer for answer in child.listen(0.1)):
    assert not child.ended(), "the handler's process ended"
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_job_at_work_dies_with_its_supervisor(tmp_path: Path) -> None:
    command, place = [sys.executable, "-c", ORPHANED], {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=place) as supervisor:
        assert supervisor.stdout is not None
        process = int(supervisor.stdout.readline())
        assert runs(process)
        supervisor.kill()
        eventually(lambda: not runs(process), 20)


def a_handler(kind: str, commands: tuple[str, ...] = (), payload: object = None) -> HandlerChild:
    """At work on one job of this type."""
    child = HandlerChild(replace(HANDLERS, commands=commands), harmless_environment())
    job = {
        "job_id": "j",
        "payload": payload,
        "attempt": 1,
        "token": 1,
        "service_job_id": None,
        "seconds": None,
    }
    child.send({"run": 1, "type": kind, "jobs": [{**job, "workspace": f"{child.home}/w"}]})
    while not any("ready" in answer for answer in child.listen(0.1)):
        assert not child.ended(), "the handler's process ended"
    return child


@pytest.mark.parametrize("kind", ["holds_the_gil", "ignores_cancel", "a_command"])
def test_a_handler_ends_by_itself_when_nobody_renews_its_claim(kind: str, tmp_path: Path) -> None:
    """W8: here nothing is done for it from when its claim was renewed last, as by a supervisor that stands still."""
    left, at_home = tmp_path / "left", tmp_path / "at-home"
    # One process of the command stays in the group, the other one leaves it, and its session, and its parent.
    script = f"setsid sh -c 'echo $$ > {left}; exec sleep 600' & echo $$ > {at_home}; exec sleep 600"
    child = a_handler(kind, (f"a_command=sh -c {shlex.quote(script)}",), {})
    try:
        if kind == "a_command":
            eventually(lambda: all(file.exists() and file.read_text().strip() for file in (left, at_home)))
        for seconds in (0.2, 600, 0.3):
            child.send({"run": 1, "until": time.monotonic() + seconds})
        eventually(child.ended, 20)
        pids = [int(file.read_text()) for file in (left, at_home) if kind == "a_command"]
        eventually(lambda: not any(map(runs, pids)), 20)
    finally:
        how = child.close()
    assert how.fenced
    assert not how.out_of_memory


def test_a_claim_that_is_renewed_or_over_ends_no_handler() -> None:
    child = a_handler("ignores_cancel")
    for until in (time.monotonic() + 0.05, time.monotonic() + 600, time.monotonic() + 0.05, None):
        child.send({"run": 1, "until": until})
    os.kill(child.fence.pid, signal.SIGKILL)  # one that somebody has killed is replaced
    eventually(lambda: not runs(child.fence.pid))
    child.send({"run": 1, "until": time.monotonic() + 600})
    assert runs(child.fence.pid)
    assert not child.ended()
    assert not child.close().fenced


def test_what_a_command_has_started_dies_with_the_supervisor(tmp_path: Path) -> None:
    """It is the handler's child, and so does not hear that the supervisor has gone."""
    file = tmp_path / "pid"
    program = ORPHANED.replace('"ignores_cancel"', '"c"').replace('"payload": None', '"payload": {}')
    program = program.replace("HANDLERS,", f"replace(HANDLERS, commands=({f'c=sh -c {COMMAND}'!r},)),")
    command, place = (
        [sys.executable, "-c", program],
        {**os.environ, "TMPDIR": str(tmp_path), "FILE": str(file)},
    )
    with subprocess.Popen(command, env=place) as supervisor:
        try:
            eventually(lambda: file.exists() and file.read_text().strip())
            process = int(file.read_text())
            assert runs(process)
        finally:
            supervisor.kill()
        eventually(lambda: not runs(process), 20)


def test_no_secret_and_no_setting_reaches_a_job() -> None:
    given: Mapping[str, Any] = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1, 2",
        "HF_HOME": "/models",
        "DATABASE_URL": "postgresql://ann:pw@host/db",
        "HERDSMAN_DATABASE_URL": "x",
        "HERDSMAN_ANYTHING": "x",
        "RUNPOD_API_KEY": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "GITHUB_TOKEN": "x",
        "MIRROR": "https://ann:pw@host/simple",
        "MAX_ATTEMPTS": "3",
    }
    assert harmless_environment(given).keys() == {"PATH", "CUDA_VISIBLE_DEVICES", "HF_HOME"}
    assert visible_gpus(given) == ("1", "2")
    assert visible_gpus({}) is None


def test_a_process_is_closed_only_when_its_whole_group_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """J7, L3: a driver may take its time over a process that was killed, and its memory is not free before."""
    looks = iter([False, False, True])

    def look(_leader: int) -> bool:
        return next(looks)

    monkeypatch.setattr("herdsman.worker.handler_process.is_alone", look)
    child = HandlerChild(HANDLERS, harmless_environment())
    child.close()
    assert list(looks) == []
