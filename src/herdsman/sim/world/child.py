"""A handler's process that only pretends: it takes the time its jobs say, and ends as they say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from signal import SIGKILL, SIGSEGV
from typing import Any

from herdsman.core.work import Load
from herdsman.sim.checks.history import Run
from herdsman.sim.world.faults import Fault
from herdsman.sim.world.scheduler import Process
from herdsman.sim.world.world import World
from herdsman.worker.child import Answer, Exit
from herdsman.worker.output import Sink

SINGLE, BATCH = "single", "batch"
SPECS: tuple[dict[str, object], ...] = (
    {"type": SINGLE},
    {"type": BATCH, "batch": 3, "linger_ms": 200},
)
FAR = 10_000.0
"""Longer than any world lasts."""


def result_of(job_id: str, payload: Mapping[str, Any]) -> dict[str, object]:
    """What a job gives, whoever runs it and how often."""
    return {"of": job_id, "number": payload["number"]}


def _seconds(job: Mapping[str, Any]) -> float:
    payload = job["payload"]
    return FAR if payload.get("hangs") and job["attempt"] <= payload["hangs"] else payload["seconds"]


@dataclass
class Work:
    """One job of an order."""

    order: int
    job: Mapping[str, Any]
    ends_at: float
    run: int
    """Its place in the books."""
    cancelled: bool = False


@dataclass
class WorldChild:
    world: World
    process: Process
    """The supervisor's: what kills it kills this, too."""
    worker: str
    load: Load
    ready_at: float
    exit: int | None = None
    _said_ready: bool = False
    _works: list[Work] = field(default_factory=list[Work])

    def listen(self, wait_s: float) -> Sequence[Answer]:
        """Time passes up to the next thing that it has to say."""
        world = self.world
        if self.exit is None:
            due = min(
                [self.ready_at if not self._said_ready else FAR, *(each.ends_at for each in self._works)]
            )
            world.scheduler.sleep(min(wait_s, max(0.0, due - world.now)))
        return [] if self.exit is not None else self._answers()

    def send(self, word: Mapping[str, Any]) -> None:
        if "jobs" in word:
            # A handler of batches returns the results of all its jobs at once.
            ends_at = self.world.now + max(_seconds(job) for job in word["jobs"])
            for job in word["jobs"]:
                self._begin(word["run"], job, ends_at)
        elif "cancel" in word:
            for each in self._works:
                if each.job["job_id"] == word["cancel"] and not each.job["payload"].get("deaf"):
                    each.cancelled, each.ends_at = True, self.world.now

    def print_to(self, sink: Sink | None) -> None:
        if sink is not None:
            sink(["begins"])

    def workspace(self, name: str) -> str:
        return name

    def tidy(self) -> None:
        """It leaves nothing behind."""

    def memory_mb(self) -> int:
        return 100

    def ended(self) -> bool:
        return self.exit is not None

    def kill(self) -> None:
        self._end(-SIGKILL, "killed")

    def close(self, grace_s: float = 0) -> Exit:
        del grace_s
        self._end(-SIGKILL, "closed")
        assert self.exit is not None
        return Exit(self.exit)

    def _begin(self, order: int, job: Mapping[str, Any], ends_at: float) -> None:
        world = self.world
        begun = Run(
            job_id=job["job_id"],
            token=job["token"],
            worker=self.worker,
            began=world.now,
            process=self.process.full_name,
        )
        world.books.runs.append(begun)
        self._works.append(Work(order, job, ends_at, len(world.books.runs) - 1))

    def _answers(self) -> list[Answer]:
        world = self.world
        if not self._said_ready and world.now >= self.ready_at:
            self._said_ready = True
            return [{"ready": list(SPECS)}]
        over = [each for each in self._works if each.ends_at <= world.now]
        answers = [answer for each in over if (answer := self._finish(each)) is not None]
        return [] if self.exit is not None and not answers else answers

    def _finish(self, work: Work) -> Answer | None:
        if work not in self._works:  # the process died with an earlier one of the batch
            return None
        payload, about = work.job["payload"], {"run": work.order, "job": work.job["job_id"]}
        again = work.job["attempt"] > payload.get("bad_attempts", 0)
        if payload.get("poison"):
            self.world.note("poison")
            self.world.tell(self.process.name, f"! {Fault.POISON}")
            self.world.scheduler.kill(self.process)
        if not again and payload.get("crashes"):
            self._end(-SIGSEGV, "crashed")
            return None
        self._works.remove(work)
        self._book(work, "cancelled" if work.cancelled else "")
        if work.cancelled:
            return {**about, "failure": "cancelled", "error": "it was asked to stop"}
        if not again and payload.get("fails"):
            return {**about, "failure": payload["fails"], "error": "it was told to fail"}
        return {**about, "result": result_of(work.job["job_id"], payload)}

    def _end(self, status: int, why: str) -> None:
        if self.exit is not None:
            return
        self.exit = status
        for work in self._works:
            self._book(work, why)
        self._works.clear()

    def die(self) -> None:
        """With its machine or its supervisor."""
        self._end(-SIGKILL, "died")

    def _book(self, work: Work, why: str) -> None:
        runs = self.world.books.runs
        runs[work.run] = replace(runs[work.run], ended=self.world.now, stopped_by=why)
