"""Two replicas on one PostgreSQL: whichever is asked, the leader acts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.databases import Backend
from tests.support.shell import Shell

PATIENCE_S = 40.0
SETTINGS = {
    "PROVIDER": "local",
    "FAKE_GPUS": "1",
    "MIN_ACTIVE_GPUS": "0",
    "MAX_ACTIVE_GPUS": "1",
    "API_PORT": "0",
    # By itself the loop would not come round again: what happens is done because somebody asked.
    "ORCHESTRATOR_POLL_SEC": "600",
    "TOKEN_PEPPER": "p" * 40,
    "ADMIN_API_KEY": "the-key-of-the-admin",
    "LOG_LEVEL": "warning",
}


def until(fact: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := fact()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)
    return found


@dataclass
class Replica:
    process: "subprocess.Popen[str]"
    printed: Path

    @property
    def url(self) -> str:
        return until(self._announced, f"an address in {self.printed}")

    def post(self, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        return httpx.post(self.url + path, json=body or {}, headers=self._who, timeout=60)

    def get(self, path: str) -> Any:
        return json.loads(self.page(path))

    def page(self, path: str) -> str:
        return httpx.get(self.url + path, headers=self._who, timeout=60).text

    def leads(self) -> bool:
        return self.get("/leader")["mine"]

    @property
    def _who(self) -> dict[str, str]:
        return {"authorization": f"Bearer {SETTINGS['ADMIN_API_KEY']}"}

    def _announced(self) -> str | None:
        assert self.process.poll() is None, self.printed.read_text()
        lines = [line.split() for line in self.printed.read_text().splitlines()]
        return next((words[1] for words in lines if words[:1] == ["api"]), None)


@pytest.fixture
def replicas(postgresql: Backend, tmp_path: Path) -> Iterator[list[Replica]]:
    url = postgresql.fresh()
    shell = Shell(tmp_path)
    shell.environment |= {**SETTINGS, "DATABASE_URL": url}
    with ExitStack() as ended:
        ended.callback(postgresql.drop, url)
        yield [start_replica(shell, tmp_path / f"printed-{number}", ended) for number in range(2)]


def start_replica(shell: Shell, printed: Path, ended: ExitStack) -> Replica:
    output = ended.enter_context(printed.open("w"))
    process = subprocess.Popen(
        [sys.executable, "-m", "herdsman", "serve"],
        cwd=shell.directory,
        env=shell.environment,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ended.callback(_stop, process)
    return Replica(process, printed)


def _stop(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture
def pair(replicas: list[Replica]) -> tuple[Replica, Replica]:
    """The one that leads, and the one that follows."""
    until(lambda: any(each.leads() for each in replicas), "a leader")
    leader, follower = sorted(replicas, key=Replica.leads, reverse=True)
    return leader, follower


def test_the_follower_is_asked_and_the_leader_acts(pair: tuple[Replica, Replica]) -> None:
    leader, follower = pair
    assert follower.post("/jobs/submit", {"type": "demo", "payload": {"seconds": 0}}).status_code == 201
    asked = time.monotonic()
    told = follower.post("/control/reconcile").json()
    assert time.monotonic() - asked < 10
    assert told["forwarded"] is True
    # By this cycle, or by the first one of a leader that was elected a moment ago; never by both.
    assert len(follower.get("/workers")["workers"]) == 1
    assert leader.post("/control/cycle").json()["forwarded"] is False


def test_when_the_leader_is_killed_the_other_one_acts_itself(pair: tuple[Replica, Replica]) -> None:
    """E3, E4: meanwhile nobody acts, and jobs are still taken in."""
    leader, follower = pair
    leader.process.kill()
    leader.process.wait()
    assert follower.post("/jobs/submit", {"type": "demo"}).status_code == 201
    answers: list[httpx.Response] = []

    def acts() -> bool:
        answers.append(follower.post("/control/reconcile"))
        return answers[-1].status_code == 200

    until(acts, "a cycle of the new leader")
    assert {each.status_code for each in answers} <= {200, 409}
    assert follower.leads()


def test_a_pause_at_one_replica_holds_at_the_other(pair: tuple[Replica, Replica]) -> None:
    leader, follower = pair
    assert follower.post("/control/pause", {"pool": "default", "reason": "a test"}).status_code == 200
    assert [each["scope"] for each in leader.get("/control/holds")["holds"]] == ["pool:default"]
    leader.post("/jobs/submit", {"type": "demo"})
    told = leader.post("/control/reconcile").json()
    assert told["actions"]["workers_spawned"] == 0, "nobody is hired for what may not run"
    assert follower.post("/control/resume", {"pool": "default"}).json()["resumed"] is True
    assert follower.post("/control/reconcile").json()["actions"]["workers_spawned"] == 1
