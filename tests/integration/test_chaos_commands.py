"""`herdsman chaos`: the plug of a worker is pulled, and its job is finished all the same."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_server import served
from tests.support.shell import Shell
from tests.support.up_command import until, up


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.environment |= {
        "FAKE_GPUS": "2",
        "MIN_ACTIVE_GPUS": "2",
        "MAX_ACTIVE_GPUS": "2",
        "CLAIM_TTL_SEC": "10",
        "HEARTBEAT_INTERVAL_SEC": "1",
        "SELF_FENCE_SEC": "8",
        "LEADER_TTL_SEC": "4",
        "LEADER_RENEW_SEC": "1",
        "SWEEP_INTERVAL_SEC": "1",
    }
    return shell


def active(shell: Shell) -> list[dict[str, Any]]:
    found: Any = shell.json("workers", "--status", "active")["workers"]
    return found


def test_the_job_of_a_killed_worker_is_done_by_another(shell: Shell) -> None:
    with up(shell):
        until(lambda: len(active(shell)) == 2)
        would = shell.said("chaos", "kill-worker", "--dry-run")
        assert would.splitlines()[-1] == "nothing was done"
        job = shell.said("submit", "demo", "--payload", '{"seconds": 6}').strip()
        until(lambda: shell.json("job", job)["status"] == "running")
        killed = shell.said("chaos", "kill-worker")
        assert f"running {job})" in killed
        assert f"herdsman why {job}" in killed
        assert "herdsman why worker gpu-" in killed
        pid = int(killed.partition("process ")[2].partition(",")[0])
        until(lambda: not Path(f"/proc/{pid}/exe").exists())
        until(lambda: shell.json("job", job)["status"] == "done")
        assert shell.json("job", job)["attempts"] == 2


def test_a_worker_that_stands_still_goes_on_afterwards(shell: Shell) -> None:
    with up(shell):
        until(lambda: len(active(shell)) == 2)
        worker = active(shell)[0]["id"]
        said = shell.said("chaos", "pause-worker", worker[-8:], "--for", "1")
        assert said.startswith(f"paused {worker} (process ")
        assert said.endswith(f"resumed {worker}\n")
        pid = int(said.partition("process ")[2].partition(",")[0])
        os.kill(pid, 0)
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T"
        asked = shell("chaos", "kill-worker", "--count", "2")
        assert asked.returncode == 1, "nobody was there to say yes"
        assert len(active(shell)) == 2
        unknown = shell("chaos", "kill-worker", "nobody")
        assert (unknown.returncode, "no worker of this machine 'nobody'" in unknown.stderr) == (3, True)


def test_rented_machines_are_left_alone(shell: Shell) -> None:
    with served(shell):
        assert "see herdsman workers, or start some with herdsman up" in shell.refused("chaos", "kill-worker")
    refused = shell("chaos", "kill-worker", PROVIDER="runpod")
    assert refused.returncode == 2
    assert "chaos is for workers of this machine, and PROVIDER is runpod" in refused.stderr
