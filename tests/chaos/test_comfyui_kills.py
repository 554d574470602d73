"""kill -9 between any two steps of a render: the next worker finishes the same one, and ComfyUI is asked once (S3-11)."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from herdsman.client import Client
from herdsman.control.commands import find_history
from herdsman.core.model import JobId
from herdsman.core.reasons import Reason
from herdsman.core.states import JobState
from herdsman.testing.comfyui import FakeComfyUI, Fault
from tests.chaos.gate import Gate, Hold, When
from tests.chaos.site import Site, site
from tests.comfyui import workflow

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

VERSION = "0.3.60"
"""One that is asked by `/queue` and `/history`, each of which can be held up."""
HELD_S = 60.0


class Step(Enum):
    STORING = "the id is about to be stored"
    STORED = "the id is stored"
    POSTED = "it is queued, and the answer is on its way"
    FIRST_MESSAGE = "the first message has come"
    LAST_MESSAGE = "the last message has come"
    FETCHING = "its file is being fetched"
    COMPLETING = "the result is about to be told"
    COMPLETED = "the result has been told"


class Victim(Enum):
    SUPERVISOR = "supervisor"
    HANDLER = "handler"


RECOVERED = (Step.LAST_MESSAGE, Step.FETCHING, Step.COMPLETING)
"""The render is over by then: what is left is to find it."""


@pytest.fixture(params=["postgresql"])
def backend(request: pytest.FixtureRequest) -> object:
    return request.getfixturevalue(request.param)


@pytest.fixture
def yard(url: str, tmp_path: Path) -> Iterator[Site]:
    quiet = {"WORKER_HEALTH_CHECK_INTERVAL_MS": "200", "WORKER_WEBSOCKET_INACTIVITY_TIMEOUT_MS": "1000"}
    with site(url, tmp_path, MAX_WORKER_LOSSES="50", **quiet) as here:
        yield here


@dataclass
class Scene:
    yard: Site
    fake: FakeComfyUI
    gate: Gate
    job_id: JobId
    _hold: Hold | None = None

    def approach(self, step: Step) -> None:
        holds = {
            Step.STORING: (f"/jobs/{self.job_id}/service", When.ASKED),
            Step.STORED: (f"/jobs/{self.job_id}/service", When.ANSWERED),
            Step.COMPLETING: ("/jobs/finish", When.ASKED),
            Step.COMPLETED: ("/jobs/finish", When.ANSWERED),
        }
        if step in holds:
            self._hold = self.gate.hold(*holds[step])
        elif step is Step.POSTED:
            self.fake.add_fault(Fault.CLOSED_PROMPT, seconds=HELD_S)
        elif step is Step.LAST_MESSAGE:
            self.fake.add_fault(Fault.SLOW_HTTP, at="GET /queue", seconds=HELD_S)
        elif step is Step.FETCHING:
            self.fake.add_fault(Fault.SLOW_HTTP, at="/view", seconds=HELD_S)

    def reached(self, step: Step) -> bool:
        if self._hold is not None:
            return self._hold.reached.is_set()
        looks: dict[Step, Callable[[], bool]] = {
            Step.POSTED: lambda: self.posts() == 1 and self.fake.runs == 1,
            Step.FIRST_MESSAGE: lambda: self.said("execution_start"),
            Step.LAST_MESSAGE: lambda: self.said("executing") and self.asked("/queue"),
            Step.FETCHING: lambda: self.asked("/view"),
        }
        return looks[step]()

    def let_go(self, victim: Victim) -> None:
        if self._hold is not None:
            self._hold.let_go(cut=victim is Victim.SUPERVISOR)
        self.fake.clear_faults()

    def posts(self) -> int:
        return self.fake.requests.count(("POST", "/prompt"))

    def said(self, kind: str) -> bool:
        return any(said.type == kind for said in self.fake.ledger.messages)

    def asked(self, path: str) -> bool:
        return any(asked == path for _, asked in self.fake.requests)

    def submit(self, **more: Any) -> None:
        token = (self.yard.directory / "admin-token").read_text().strip()
        with Client(self.yard.url, token) as client:
            client.submit("comfyui", {"workflow": workflow(**more)}, job_id=self.job_id)
        self.yard.numbers[self.job_id] = 0


@pytest.mark.parametrize("victim", Victim, ids=lambda each: each.value)
def test_a_kill_at_any_step_never_costs_a_second_render(yard: Site, victim: Victim) -> None:
    for step in Step:
        with FakeComfyUI(version=VERSION, speed=2) as fake:
            gate = Gate(yard.port)
            scene = Scene(yard, fake, gate, JobId(f"{victim.value}-{step.name.lower()}"))
            try:
                strike(scene, step, victim)
            finally:
                gate.close()
                for name in [each for each in yard.pack.names if each != "api"]:
                    yard.pack.kill(name)


def strike(scene: Scene, step: Step, victim: Victim) -> None:
    yard, fake = scene.yard, scene.fake
    scene.approach(step)
    first = yard.work("picture", scene.gate.url, COMFYUI_URL=fake.url)
    scene.submit(seconds=2.0 if step is Step.FIRST_MESSAGE else 0.2)
    yard.until(lambda: scene.reached(step))
    if victim is Victim.SUPERVISOR:
        yard.pack.kill(first)
    else:
        (pid,) = yard.handlers_of(first)
        os.kill(pid, signal.SIGKILL)
    scene.let_go(victim)
    if victim is Victim.SUPERVISOR:
        yard.work("picture", COMFYUI_URL=fake.url)
    yard.until(lambda: yard.job(scene.job_id).state is JobState.DONE)
    # A supervisor that has the result needs no handler any more.
    check(scene, step, found=step in RECOVERED and (victim, step) != (Victim.HANDLER, Step.COMPLETING))


def check(scene: Scene, step: Step, *, found: bool) -> None:
    job = scene.yard.job(scene.job_id)
    steps = [each.to_state for each in find_history(scene.yard.services, scene.job_id)]
    assert steps.count(JobState.DONE) == 1, steps
    assert scene.posts() == 1, f"{step}: it was handed over {scene.posts()} times"
    assert scene.fake.runs == 1, f"{step}: it was rendered {scene.fake.runs} times"
    if found:
        assert job.reason is Reason.RECOVERED, f"{step}: {job.reason}"
        assert job.saved_gpu is not None
        assert job.saved_gpu.total_seconds() > 0
