"""A pool and its workers outlive the control plane; the next one finds them again, and doubles none."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from herdsman.providers.local import processes
from herdsman.providers.local.processes import Identity
from herdsman.providers.local.provider import LocalProvider
from herdsman.server.wiring import open_provider
from herdsman.settings import load_settings
from tests.support.shell import Shell

PATIENCE_S = 90
HURRIED = {
    "CLAIM_TTL_SEC": "10",
    "HEARTBEAT_INTERVAL_SEC": "1",
    "SELF_FENCE_SEC": "8",
    "LEADER_TTL_SEC": "4",
    "LEADER_RENEW_SEC": "1",
    "SWEEP_INTERVAL_SEC": "1",
}


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """No worker outlives the test."""
    shell = Shell(tmp_path)
    shell.environment |= {
        "MIN_ACTIVE_GPUS": "0",
        "MAX_ACTIVE_GPUS": "3",
        "API_PORT": str(_free_port()),
        "LOCAL_STATE_DIR": str(tmp_path / "state"),
        "FAKE_GPUS": "3",
        "LOG_LEVEL": "warning",
        **HURRIED,
    }
    yield shell
    for who in _processes(shell):
        processes.kill_family(who)


@pytest.mark.timeout(400)
def test_a_pool_is_found_again_after_a_kill_with_the_same_workers(shell: Shell) -> None:
    with up(shell) as first:
        shell.said("pool", "create", "llm", "--model", "org/llama-8b", "--workers", "2")
        _until(lambda: _pool(shell)["status"] == "running" and _pool(shell)["workers"]["active"] == 2)
        before, running = _workers(shell), _processes(shell)
        assert len(running) == 2
        os.kill(first.pid, signal.SIGKILL)
        first.wait(30)
    with up(shell):
        assert _pool(shell)["status"] == "running"
        job_id = shell.said("submit", "demo", "--pool", "llm", "--payload", '{"seconds": 0.1}').strip()
        _until(lambda: shell.json("job", job_id)["status"] == "done")
        _until(lambda: all(beat > before[name] for name, beat in _workers(shell).items()))
        assert _workers(shell).keys() == before.keys()
        assert _processes(shell) == running
        assert shell.json("pool", "scale", "llm", "3")["desired_workers"] == 3
        _until(lambda: _pool(shell)["workers"]["active"] == 3)
        assert running < _processes(shell)
        _swap(shell)
        _drain_a_busy_pool(shell)


def _swap(shell: Shell) -> None:
    """Every worker follows, and stays the process that it was: only its handler is another."""
    before = _processes(shell)
    assert shell.json("pool", "swap", "llm", "--model", "org/llama-70b")["revision"] == 2
    _until(lambda: _pool(shell)["at_revision"] == 3)
    assert not _pool(shell)["swapping"]
    assert _processes(shell) == before


def _drain_a_busy_pool(shell: Shell) -> None:
    """What runs is finished, what waits is not begun, and then it has stopped."""
    running = shell.said("submit", "demo", "--pool", "llm", "--payload", '{"seconds": 8}').strip()
    _until(lambda: shell.json("job", running)["status"] == "running")
    drained = shell.json("pool", "drain", "llm", "--wait")
    assert drained["status"] == "stopped"
    done = shell.json("job", running)
    assert (done["status"], done["attempts"], done["interruptions"]) == ("done", 1, 0)
    assert "is stopped and takes no jobs" in shell.refused("submit", "demo", "--pool", "llm")
    assert _processes(shell) == set()


@contextmanager
def up(shell: Shell) -> Generator[subprocess.Popen[str]]:
    """Until the block ends; one that was killed there is not missed."""
    with subprocess.Popen(
        [sys.executable, "-m", "herdsman", "up"],
        cwd=shell.directory,
        env=shell.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            while "Ctrl-C" not in (line := process.stdout.readline()):
                assert line, f"it ended with {process.wait(30)}"
            yield process
        finally:
            alive = process.poll() is None
            if alive:
                process.send_signal(signal.SIGINT)
        assert not alive or process.wait(60) == 0


def _processes(shell: Shell) -> set[Identity]:
    """What was started here, and nothing else."""
    provider = open_provider(load_settings(shell.environment, shell.directory))
    assert isinstance(provider, LocalProvider)
    with provider.state.locked():
        return {each.process for each in provider.state.records() if each.process is not None}


def _pool(shell: Shell) -> dict[str, Any]:
    return shell.json("pool", "show", "llm")


def _workers(shell: Shell) -> dict[str, str]:
    """Those that live, with their last heartbeats."""
    found: Any = shell.json("workers")["workers"]
    return {each["id"]: each["last_heartbeat"] for each in found if each["status"] != "terminated"}


def _until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
