"""kill -9 between any two steps of a render: the next worker finishes the same one, and ComfyUI is asked once."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from herdsman.client import Client
from herdsman.ids import JobId
from herdsman.jobs.commands import find_history
from herdsman.states import JobStatus, Reason
from herdsman.testing.fakes.comfyui import FakeComfyUI, Fault
from tests.chaos.holding_proxy import Gate, Hold, When
from tests.chaos.site import Site, site
from tests.support.comfyui import workflow

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

VERSION = "0.3.60"
"""One that is asked by `/queue` and `/history`, which can be held up."""
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
def cluster(url: str, tmp_path: Path) -> Iterator[Site]:
    quiet = {"WORKER_HEALTH_CHECK_INTERVAL_MS": "200", "WORKER_WEBSOCKET_INACTIVITY_TIMEOUT_MS": "1000"}
    with site(url, tmp_path, MAX_WORKER_LOSSES="50", **quiet) as here:
        yield here


@dataclass
class Scene:
    """One step, with a ComfyUI, a gate and a type of jobs of its own, so that all steps are struck at once."""

    cluster: Site
    step: Step
    victim: Victim
    fake: FakeComfyUI
    gate: Gate
    worker: str = ""
    _hold: Hold | None = None

    def approach(self) -> None:
        holds = {
            Step.STORING: (f"/jobs/{self.job_id}/service", When.ASKED),
            Step.STORED: (f"/jobs/{self.job_id}/service", When.ANSWERED),
            Step.COMPLETING: ("/jobs/finish", When.ASKED),
            Step.COMPLETED: ("/jobs/finish", When.ANSWERED),
        }
        if self.step in holds:
            self._hold = self.gate.hold(*holds[self.step])
        elif self.step is Step.POSTED:
            self.fake.add_fault(Fault.CLOSED_PROMPT, seconds=HELD_S)
        elif self.step is Step.LAST_MESSAGE:
            # What the queue holds is asked for the health of the service, too; the history only for a job that is over.
            self.fake.add_fault(Fault.SLOW_HTTP, at="GET /history", seconds=HELD_S)
        elif self.step is Step.FETCHING:
            self.fake.add_fault(Fault.SLOW_HTTP, at="/view", seconds=HELD_S)
        self.worker = self._start(self.gate.url)
        self._submit()

    def has_arrived(self) -> bool:
        if self._hold is not None:
            return self._hold.reached.is_set()
        looks: dict[Step, Callable[[], bool]] = {
            Step.POSTED: lambda: self.posts() == 1 and self.fake.runs == 1,
            Step.FIRST_MESSAGE: lambda: self._said("execution_start"),
            Step.LAST_MESSAGE: lambda: self._said("execution_success") and self._asked("/history"),
            Step.FETCHING: lambda: self._asked("/view"),
        }
        return looks[self.step]()

    def strike(self) -> None:
        if self.victim is Victim.SUPERVISOR:
            self.cluster.pack.kill(self.worker)
            return
        # One process runs the handlers of users and one speaks to services; only the second has the job.
        assert self.cluster.kill_handlers(self.worker) == 2

    def go_on(self) -> None:
        """What was held is lost with whoever died, and goes on if both ends live."""
        if self._hold is not None:
            self._hold.let_go(cut=self.victim is Victim.SUPERVISOR)
        self.fake.clear_faults()
        if self.victim is Victim.SUPERVISOR:
            self._start(self.cluster.url)

    def check(self) -> None:
        job = self.cluster.job(self.job_id)
        steps = [each.to_status for each in find_history(self.cluster.services, self.job_id)]
        assert steps.count(JobStatus.DONE) == 1, steps
        assert self.posts() == 1, f"{self.step}: it was handed over {self.posts()} times"
        assert self.fake.runs == 1, f"{self.step}: it was rendered {self.fake.runs} times"
        # A supervisor that has the result needs no handler any more.
        if self.step in RECOVERED and (self.victim, self.step) != (Victim.HANDLER, Step.COMPLETING):
            assert job.reason is Reason.RECOVERED, f"{self.step}: {job.reason}"
            assert job.saved_gpu is not None
            assert job.saved_gpu.total_seconds() > 0

    @property
    def kind(self) -> str:
        return f"{self.victim.value}-{self.step.name.lower()}"

    @property
    def job_id(self) -> JobId:
        return JobId(f"job-{self.kind}")

    def posts(self) -> int:
        return self.fake.requests.count(("POST", "/prompt"))

    def _said(self, kind: str) -> bool:
        return any(said.type == kind for said in self.fake.ledger.messages)

    def _asked(self, path: str) -> bool:
        return any(asked.startswith(path) for _, asked in self.fake.requests)

    def _start(self, url: str) -> str:
        services = self.cluster.directory / f"{self.kind}.toml"
        services.write_text(f'[{self.kind}]\nconnector = "comfyui"\nurl = "{self.fake.url}"\n')
        return self.cluster.work("other", url, WORKER_CONNECTORS_FILE=str(services))

    def _submit(self) -> None:
        token = (self.cluster.directory / "admin-token").read_text().strip()
        seconds = 4.0 if self.step is Step.FIRST_MESSAGE else 0.2
        with Client(self.cluster.url, token) as client:
            client.submit(self.kind, {"workflow": workflow(seconds=seconds)}, job_id=self.job_id)
        self.cluster.numbers[self.job_id] = 0


@pytest.mark.parametrize("victim", Victim, ids=lambda each: each.value)
def test_a_kill_at_any_step_never_costs_a_second_render(cluster: Site, victim: Victim) -> None:
    with ExitStack() as open_now:
        scenes = [_scene(open_now, cluster, step, victim) for step in Step]
        for scene in scenes:
            scene.approach()
        for scene in scenes:
            cluster.until(scene.has_arrived)
        for scene in scenes:
            scene.strike()
        for scene in scenes:
            scene.go_on()
        cluster.until_done()
        for scene in scenes:
            scene.check()
        for name in [each for each in cluster.pack.names if each != "api"]:
            cluster.pack.kill(name)


def _scene(open_now: ExitStack, cluster: Site, step: Step, victim: Victim) -> Scene:
    fake = open_now.enter_context(FakeComfyUI(version=VERSION, speed=2))
    gate = Gate(cluster.port)
    open_now.callback(gate.close)
    return Scene(cluster, step, victim, fake, gate)
