"""One control cycle as a value: what was seen, what was planned, and what came of it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, cast

from herdsman.control.shadows import documents
from herdsman.core.actions import (
    BuryWorker,
    DrainWorker,
    FailWorker,
    PromoteWorker,
    RetireWorker,
    ReturnJob,
    SpawnWorker,
)
from herdsman.core.decide import Planned
from herdsman.core.fleet import Snapshot, Unseen
from herdsman.core.model import PoolId, WorkerId
from herdsman.core.shadow import Compared
from herdsman.core.states import WorkerState


@dataclass(frozen=True, slots=True)
class Outcome:
    step: Planned
    done: bool
    said: str = ""
    """Why it was not done, or what is to be known about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    started_at: datetime | None
    epoch: int | None
    seen: Snapshot | None
    outcomes: tuple[Outcome, ...] = ()
    skipped: str = ""
    """Why nothing was looked at."""
    shadow: tuple[Compared, ...] = ()
    """What a second policy would have done; of that, nothing is done."""

    @property
    def complete(self) -> bool:
        """Everything could be seen and done."""
        seen = self.seen is not None and not isinstance(self.seen.instances, Unseen)
        return seen and all(outcome.done for outcome in self.outcomes)

    @property
    def fault(self) -> str:
        """Why it is not complete, as one sentence; empty where it is."""
        undone = [each for each in self.outcomes if not each.done]
        if self.seen is None or not undone:
            return self.skipped or self._blind()
        first = f"{type(undone[0].step.action).__name__}: {undone[0].said or 'it does not say why'}"
        return f"{len(undone)} of {len(self.outcomes)} steps could not be done, the first is {first}"

    def summary(self) -> dict[str, object]:
        done = Counter(type(outcome.step.action) for outcome in self.outcomes if outcome.done)
        return {
            "timestamp": self.started_at.isoformat() if self.started_at else None,
            "actions": {
                "workers_promoted": done[PromoteWorker],
                "workers_failed": done[FailWorker],
                "workers_spawned": done[SpawnWorker],
                "workers_terminated": done[BuryWorker],
                "workers_drained": done[DrainWorker] + done[RetireWorker],
                "tasks_reset": done[ReturnJob],
            },
            "status": self._status(),
            "skipped": self.skipped or self._blind(),
            **({"shadow": documents(self.shadow)} if self.shadow else {}),
        }

    def steps(self) -> list[dict[str, object]]:
        pools = {each.id: each.pool for each in self.seen.workers} if self.seen is not None else {}
        return [
            {**_placed(step_document(outcome.step), pools), "done": outcome.done, "said": outcome.said}
            for outcome in self.outcomes
        ]

    def _status(self) -> Mapping[str, int]:
        if self.seen is None:
            return {}
        states = Counter(worker.state for worker in self.seen.workers)
        counted = {
            f"{state}_workers": states[state]
            for state in (WorkerState.SPAWNING, WorkerState.ACTIVE, WorkerState.TERMINATING)
        }
        queued = sum(pool.queued for pool in self.seen.pools)
        return {"queued_tasks": queued, **counted, "total_workers": sum(counted.values())}

    def _blind(self) -> str:
        if self.seen is not None and isinstance(self.seen.instances, Unseen):
            return f"the provider could not be looked at: {self.seen.instances.why}"
        return ""


def step_document(step: Planned) -> dict[str, object]:
    """A step as it is printed and recorded."""
    action: dict[str, Any] = asdict(step.action)
    why = action.pop("why")
    told = {"code": why["code"], "why": why["text"], "numbers": dict(why["numbers"])}
    return {"phase": step.phase, "action": type(step.action).__name__, **action, **told}


def _placed(told: dict[str, object], pools: Mapping[WorkerId, PoolId]) -> dict[str, object]:
    """What is about a worker is about its pool, too."""
    named = cast("WorkerId", told.get("worker_id", told.get("about")))
    return {**told, "pool": pools[named]} if "pool" not in told and named in pools else told
