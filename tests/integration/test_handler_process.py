"""A handler's process and its supervisor: it dies with it, and gets none of its secrets."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from herdsman.settings.surroundings import harmless_environment, visible_gpus
from herdsman.worker.child import HandlerChild
from tests.integration.worker.yard import HANDLERS, eventually, runs

ORPHANED = """
import os, time
from herdsman.worker.child import HandlerChild
from tests.integration.worker.yard import HANDLERS
child = HandlerChild(HANDLERS, dict(os.environ))
job = {"job_id": "j", "payload": None, "attempt": 1, "token": 1, "service_job_id": None, "seconds": None, "workspace": "w"}
child.send({"run": 1, "type": "ignores_cancel", "jobs": [job]})
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

    monkeypatch.setattr("herdsman.worker.child.is_alone", look)
    child = HandlerChild(HANDLERS, harmless_environment())
    child.close()
    assert list(looks) == []
