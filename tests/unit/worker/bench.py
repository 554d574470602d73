"""A supervisor with jobs in memory, a clock that the test moves, and a handler's process that the test plays."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from datetime import timedelta
from typing import Any, cast

from herdsman.ids import JobId
from herdsman.jobs.model import JobPolicy, NewJob
from herdsman.jobs.protocol import Load
from herdsman.ports import SystemThreads
from herdsman.testing.clocks import ManualClock
from herdsman.worker.handler_pool import HandlerPool
from herdsman.worker.handler_process import Answer, Exit
from herdsman.worker.heartbeat import Keeper
from herdsman.worker.job_log import Sink
from herdsman.worker.stop_rules import DeadMan, Limits
from herdsman.worker.supervisor import Supervisor
from tests.worker_queue import BreakableQueue, StoredJob, StoredJobs

LIMITS = Limits(self_fence=timedelta(seconds=25), drain_grace=timedelta(seconds=600), stop_grace=timedelta(seconds=30))
READY: Answer = {"ready": [{"type": "demo"}, {"type": "many", "batch": 4}, {"type": "slow", "stall_seconds": 5.0}]}

Play = Callable[["FakeChild", Mapping[str, Any]], None]


class FakeChild:
    """Does with each order what the test says; time passes while it is listened to."""

    def __init__(self, clock: ManualClock, play: Play, first: Answer = READY) -> None:
        self.clock = clock
        self.play = play
        self.answers: list[Answer] = [first]
        self.sent: list[Mapping[str, Any]] = []
        self.each_tick: Callable[[], object] = lambda: None
        self.print: Sink | None = None
        self.killed_at: float | None = None
        self.exit: Exit | None = None
        self.closed = False
        self.memory = 0
        self.home = "/nowhere"
        self.ahead: Mapping[str, Any] | None = None
        self.open = set[str]()

    def listen(self, wait_s: float) -> Sequence[Answer]:
        self.go_on()
        if not self.answers:
            self.clock.advance(timedelta(seconds=wait_s))
            self.each_tick()
        said, self.answers = self.answers, []
        return said

    def send(self, word: Mapping[str, object]) -> None:
        self.sent.append(word)
        if "jobs" in word:
            self.open = {job["job_id"] for job in cast("list[Any]", word["jobs"])}
            self.play(self, word)

    def go_on(self) -> None:
        """With the order that was sent ahead, once the one before is over."""
        if not self.open and self.ahead is not None:
            order, self.ahead = self.ahead, None
            self.send(order)

    def send_ahead(self, order: Mapping[str, object]) -> bool:
        self.go_on()
        self.ahead = order
        return True

    def recall(self) -> bool:
        self.go_on()
        order, self.ahead = self.ahead, None
        return order is not None

    def wake(self) -> None: ...

    def print_to(self, sink: Sink | None, output: int = 0) -> None:
        if sink is not None or output == 0:
            self.print = sink

    def tidy(self, spare: str = "", began: float | None = None) -> None: ...

    def memory_mb(self) -> int:
        return self.memory

    def ended(self) -> bool:
        assert not self.closed, "a process that was closed is not asked again"
        return self.exit is not None

    def kill(self) -> None:
        self.killed_at = self.clock.monotonic()
        self.exit = Exit(-9)

    def close(self, grace_s: float = 0) -> Exit:
        del grace_s
        self.closed = True
        return self.exit or Exit(-9)

    def answer(self, order: Mapping[str, Any], word: Mapping[str, object]) -> None:
        for job in order["jobs"]:
            self.answers.append({"run": order["run"], "job": job["job_id"], **word})
            if "result" in word or "failure" in word:
                self.open.discard(job["job_id"])


def done(child: FakeChild, order: Mapping[str, Any]) -> None:
    child.answer(order, {"result": "ok"})


def silent(child: FakeChild, order: Mapping[str, Any]) -> None:
    del child, order


class AtOnce(Executor):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        fn(*args, **kwargs)
        return Future()


class OneThread(SystemThreads):
    """What goes on while a job runs is over at once, so that the clock of the test does not run ahead of it."""

    def line(self, name: str) -> Executor:
        return AtOnce() if name == "exchange" else super().line(name)


class Bench:
    """Its keeper beats when the test says so, not from a thread."""

    def __init__(self, play: Play = done, *, max_jobs: int | None = None, deadman: DeadMan | None = None) -> None:
        self.clock = ManualClock()
        self.jobs = StoredJobs(self.clock, JobPolicy())
        self.queue = BreakableQueue(self.jobs)
        self.said: list[str] = []
        self.children: list[FakeChild] = []
        self.loads: list[Load] = []
        self.play = play
        self.first = READY
        self.each_tick: Callable[[], object] = self.beat
        self.ended_instance = 0
        self.warm = HandlerPool(launch=self._launch, clock=self.clock, say=self.said.append, max_jobs=max_jobs)
        self.keeper = Keeper(
            self.queue,
            self.clock,
            timedelta(seconds=5),
            lambda: None,
            self.said.append,
            self.warm.model_state,
            self_fence=LIMITS.self_fence,
        )
        self.supervisor = Supervisor(
            queue=self.queue,
            keeper=self.keeper,
            clock=self.clock,
            limits=LIMITS,
            warm=self.warm,
            say=self.said.append,
            wait=timedelta(0),
            deadman=deadman or DeadMan(),
            end_instance=self._end_instance,
            threads=OneThread(),
        )

    def beat(self) -> bool:
        return self.keeper.beat()

    def submit(self, kind: str = "demo", **wanted: Any) -> JobId:
        return self.jobs.submit(NewJob(type=kind, **wanted))

    def job(self, job_id: JobId) -> StoredJob:
        return self.jobs.job(job_id)

    def work(self) -> None:
        """One turn: what can be claimed now, and what comes back with its end."""
        while not self.warm.get_ready(timedelta(0)):
            assert self.warm.fault is None
        claims, asked_at = self.supervisor.claim()
        while claims:
            claims, asked_at = self.supervisor.work(claims, asked_at)

    @property
    def child(self) -> FakeChild:
        return self.children[-1]

    def _launch(self, load: Load) -> FakeChild:
        assert all(child.closed for child in self.children), "two processes would share the GPU"
        self.loads.append(load)
        child = FakeChild(self.clock, self.play, self.first)
        child.each_tick = self._tick
        self.children.append(child)
        return child

    def _tick(self) -> None:
        self.each_tick()  # as it is by then: a test may change it

    def _end_instance(self) -> None:
        self.ended_instance += 1
