"""A simulated handler process: it runs on by itself while its supervisor is stopped, as a real one does.

What is between an order and its answers is the code of a real handler's process; only the handlers are made up. They
take the time that their jobs say, and end as they say.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from math import inf
from signal import SIGKILL, SIGSEGV
from typing import Any

from herdsman.jobs.protocol import Load
from herdsman.testing.simulation.checks.history import Run, Saved
from herdsman.testing.simulation.external_service import WorldConnector, WorldService
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.scheduler import Process
from herdsman.testing.simulation.threads import WorldEvent
from herdsman.testing.simulation.world import World
from herdsman.worker.context import CANCELLED, Cancelled, JobContext, TryAgain, UserError
from herdsman.worker.handler_main import serve, value_of
from herdsman.worker.handler_process import Answer, Exit
from herdsman.worker.job_log import Sink
from herdsman.worker.registry import Handler, HandlerSpec
from herdsman.worker.service_run import ServiceRun, Watching

SINGLE, BATCH, REMOTE = "single", "batch", "remote"
SPECS: tuple[dict[str, object], ...] = (
    {"type": SINGLE},
    {"type": BATCH, "batch": 3, "linger_ms": 200},
    {"type": REMOTE},
)
FAR = 10_000.0
"""Longer than any world lasts."""
WATCHING = Watching(
    interval=timedelta(seconds=6),
    inactivity=timedelta(seconds=6),
    patience=timedelta(seconds=20),
    stall=timedelta(seconds=60),
    settle=timedelta(seconds=4),
)
_FAILURES: Mapping[str, type[Exception]] = {
    "job_error": RuntimeError,
    "infrastructure": TryAgain,
    "out_of_memory": MemoryError,
    "user_error": UserError,
}


def result_of(job_id: str, payload: Mapping[str, Any]) -> dict[str, object]:
    """What a job gives, whoever runs it and how often."""
    return {"of": job_id, "number": payload["number"]}


@dataclass
class WorldChild:
    world: World
    process: Process
    """The supervisor's: what kills it kills this, too."""
    worker: str
    load: Load
    ready_at: float
    service: WorldService
    home: str = field(default_factory=tempfile.gettempdir)
    exit: int | None = None
    fenced: bool = False
    _run: int = 0
    _busy: bool = False
    _next: Mapping[str, Any] | None = None
    """The order that was sent ahead."""
    _until: float = inf
    """When it ends by itself, in the time of the world."""
    _said: list[Answer] = field(default_factory=list[Answer])
    _stops: dict[str, str] = field(default_factory=dict[str, str])
    """Which jobs are asked to stop, and why."""
    _replies: dict[int, Mapping[str, Any]] = field(default_factory=dict[int, Mapping[str, Any]])
    _asked: int = 0
    _runs: dict[str, Run] = field(default_factory=dict[str, Run])
    """The jobs at work."""

    def __post_init__(self) -> None:
        scheduler = self.world.scheduler
        self._heard, self._told, self._renewed = (WorldEvent(scheduler) for _ in range(3))
        self._own = Process(f"{self.process.name}/handler", self.world.now, danger=0.0)

        def load() -> None:
            scheduler.sleep(self.ready_at - self.world.now)
            self._say({"ready": list(SPECS)})

        self.world.start(self._own, "main", load)
        self.world.start(self._own, "fence", self._fence)

    # What the supervisor asks of it.

    def listen(self, wait_s: float) -> Sequence[Answer]:
        if not self._said and self.exit is None:
            self._told.wait(wait_s)
        self._told.clear()
        said, self._said = self._said, []
        return said

    def send(self, word: Mapping[str, Any]) -> None:
        if self.exit is not None:
            return
        if "until" in word:
            # It was counted on the clock of the supervisor.
            self._until = inf if word["until"] is None else word["until"] - self.process.ahead
            self._renewed.set()
            return
        if "jobs" in word:
            self._busy = True
            self.world.start(self._own, "order", partial(self._serve_all, word))
        elif "cancel" in word:
            self._stops.setdefault(word["cancel"], word.get("reason", ""))
        elif "reply" in word:
            self._replies[word["reply"]] = word
        self._heard.set()

    def send_ahead(self, order: Mapping[str, object]) -> bool:
        if not self._busy:  # the one before is over already
            self.send(order)
        else:
            self._next = order
        return True

    def recall(self) -> bool:
        order, self._next = self._next, None
        return order is not None

    def wake(self) -> None:
        self._told.set()

    def print_to(self, sink: Sink | None, output: int = 0) -> None:
        del output
        if sink is not None:
            sink(["begins"])

    def tidy(self, spare: str = "", began: float | None = None) -> None:
        """It leaves nothing behind."""

    def memory_mb(self) -> int:
        return 100

    def ended(self) -> bool:
        return self.exit is not None

    def kill(self) -> None:
        self.end(-SIGKILL, "killed")

    def close(self, grace_s: float = 0) -> Exit:
        del grace_s
        self.end(-SIGKILL, "closed")
        assert self.exit is not None
        return Exit(self.exit, fenced=self.fenced)

    def end(self, status: int, reason: str) -> None:
        if self.exit is not None:
            return
        self.exit = status
        for job_id in [*self._runs]:
            self._book(job_id, reason)
        self._own.alive = False
        self._told.set()

    # What a handler's process does.

    def _fence(self) -> None:
        """Does what the program beside a real handler does: it needs no supervisor for it."""
        while (left := self._until - self.world.now) > 0:
            self._renewed.clear()
            self._renewed.wait(None if left == inf else left)
        self.world.note("fenced")
        self.fenced = True
        self.end(-SIGKILL, "fenced")

    def _serve_all(self, order: Mapping[str, Any]) -> None:
        """One, and what has been sent behind it by then."""
        following: Mapping[str, Any] | None = order
        while following is not None:
            self._serve(following)
            following, self._next = self._next, None
        self._busy = False

    def _serve(self, order: Mapping[str, Any]) -> None:
        self._run, self._stops = order["run"], {}
        for job in order["jobs"]:
            run = self._runs[job["job_id"]] = Run(
                job_id=job["job_id"],
                token=job["token"],
                worker=self.worker,
                began=self.world.now,
                process=self.process.full_name,
            )
            self.world.books.runs.append(run)
        runs = {SINGLE: self._single, BATCH: self._batch, REMOTE: self._remote}
        specs = [HandlerSpec(**each) for each in SPECS]  # pyright: ignore[reportArgumentType]
        handlers = {spec.type: Handler(spec=spec, run=runs[spec.type]) for spec in specs}
        serve(self, handlers, dict(order))

    def _single(self, job: JobContext) -> object:
        if job.payload.get("saves"):
            self._take_up(job)
        self._work([job])
        outcome = self._outcome(job)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _batch(self, jobs: list[JobContext]) -> object:
        """The results of all come at once."""
        self._work(jobs)
        return [self._outcome(job) for job in jobs]

    def _remote(self, job: JobContext) -> object:
        connector = WorldConnector(self.world, self.service)
        return ServiceRun(job=job, connector=connector, watching=WATCHING, clock=self.world.clock).run()

    def _take_up(self, job: JobContext) -> None:
        """What an earlier attempt saved is there, and what this one saves will be."""
        world = self.world
        began, found = world.now, job.checkpoint()
        saved = Saved(job_id=job.job_id, token=job.token, value=next(world.numbers), began=began, found=found)
        world.books.saves.append(saved)
        job.save_checkpoint(saved.value)
        saved.kept = world.now
        world.note("checkpoint_saved" if found is None else "checkpoint_found")

    def _work(self, jobs: Sequence[JobContext]) -> None:
        """Until the longest of them is over, or each that hears it was asked to stop."""
        lasts = (FAR if job.attempt <= job.payload.get("hangs", 0) else float(job.payload["seconds"]) for job in jobs)
        until = self.world.now + max(lasts)
        while self.world.now < until and not all(_hears(job) for job in jobs):
            self._heard.clear()
            self._heard.wait(until - self.world.now)

    def _outcome(self, job: JobContext) -> object:
        world, payload = self.world, job.payload
        if _hears(job):
            return Cancelled("it was asked to stop")
        if payload.get("poison"):
            world.note("poison")
            world.tell(self.process.name, f"! {Fault.POISON}")
            world.scheduler.kill(self.process)
            world.scheduler.leave()
        if job.attempt > payload.get("bad_attempts", 0):
            return result_of(job.job_id, payload)
        if payload.get("crashes"):
            self.end(-SIGSEGV, "crashed")
            world.scheduler.leave()
        if payload.get("fails"):
            return _FAILURES[payload["fails"]]("it was told to fail")
        return result_of(job.job_id, payload)

    # The line to its supervisor, as handlers see it.

    def tell(self, job_id: str, word: Mapping[str, object]) -> None:
        if "result" in word or "failure" in word:
            self._book(job_id, CANCELLED if word.get("failure") == CANCELLED else "")
        self._say({"run": self._run, "job": job_id, **word})

    def ask(self, job_id: str, word: Mapping[str, object]) -> Any:
        self._asked += 1
        number = self._asked
        self.tell(job_id, {"ask": number, **word})
        while number not in self._replies:
            self._heard.clear()
            self._heard.wait()
        return value_of(self._replies.pop(number))

    def cancelled(self, job_id: str) -> bool:
        return job_id in self._stops

    def why_stopped(self, job_id: str) -> str | None:
        return self._stops.get(job_id)

    def _say(self, word: Answer) -> None:
        self._said.append(word)
        self._told.set()

    def _book(self, job_id: str, reason: str) -> None:
        run = self._runs.pop(job_id)
        run.ended, run.stopped_by = self.world.now, reason


def _hears(job: JobContext) -> bool:
    return job.cancelled and not job.payload.get("deaf")
