"""What a shadow policy would have done, as it is written down with a cycle."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, cast

import structlog

from herdsman.db.connection import Database, Tx
from herdsman.errors import HerdsmanError, ProviderRejected, ProviderUnavailable, StaleWrite, StoreUnavailable
from herdsman.explain.rules import NextWorker, next_worker
from herdsman.fleet import history_sql, sql
from herdsman.fleet.actions import (
    ActionReason,
    Code,
    ConfirmTerminated,
    DrainIdleWorker,
    DrainWorker,
    FailWorker,
    Note,
    PromoteWorker,
    RequeueJob,
    SpawnWorker,
)
from herdsman.fleet.decide import Compared, Plan, Planned, compare, decide
from herdsman.fleet.execute import Executor
from herdsman.fleet.leader import Leadership
from herdsman.fleet.model import InstanceRef
from herdsman.fleet.observe import Observer
from herdsman.fleet.recording import Recording
from herdsman.fleet.recording import write as write_recording
from herdsman.fleet.snapshot import ListingFailed, PoolSnapshot, Snapshot, WorkerSnapshot
from herdsman.ids import PoolId, WorkerId
from herdsman.ports import Clock
from herdsman.states import WorkerState
from herdsman.wire import told_of

MOST_POOLS = 50


def documents(compared: Sequence[Compared]) -> list[dict[str, object]]:
    """What differs comes first, and alone has its details."""
    ordered = sorted(compared, key=lambda each: (not each.differs and not each.error, each.pool))
    return [_document(each) for each in ordered[:MOST_POOLS]]


def outcome(compared: Sequence[Compared]) -> str | None:
    """Of a whole cycle, in one word; None where no pool has a shadow."""
    if not compared:
        return None
    if any(each.error for each in compared):
        return "failed"
    return "differs" if any(each.differs for each in compared) else "agrees"


def _document(each: Compared) -> dict[str, object]:
    head: dict[str, object] = {"pool": each.pool, "policy": each.policy, "differs": each.differs}
    if each.error:
        return {**head, "live": asdict(each.live), "error": each.error}
    if not each.differs or each.shadow is None:
        return head
    return {**head, "live": asdict(each.live), "shadow": asdict(each.shadow)}


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
        seen = self.seen is not None and not isinstance(self.seen.instances, ListingFailed)
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
                "workers_terminated": done[ConfirmTerminated],
                "workers_drained": done[DrainIdleWorker] + done[DrainWorker],
                "tasks_reset": done[RequeueJob],
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
        if self.seen is not None and isinstance(self.seen.instances, ListingFailed):
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


MOST_JUDGED = 500
"""Pools times workers up to which it is asked what would have added one more: that judges each of them many times."""
TOO_MANY = "so many workers and pools were seen that it was not asked what would have added one more"


def counts(seen: Snapshot) -> dict[str, object]:
    """The numbers that a page plots, for each cycle again: few and small."""
    return {
        "queued": {each.id: each.queued for each in seen.pools[:MOST_POOLS]},
        "running": sum(_held(each) for each in seen.workers),
    }


def inputs(seen: Snapshot) -> dict[str, object]:
    judged = len(seen.pools) * len(seen.workers) <= MOST_JUDGED
    unseen = seen.instances.why if isinstance(seen.instances, ListingFailed) else None
    return {
        "now": seen.now.isoformat(),
        "pools": {each.id: _pool(seen, each, judged=judged) for each in seen.pools[:MOST_POOLS]},
        "more_pools": max(0, len(seen.pools) - MOST_POOLS),
        "instances": None if isinstance(seen.instances, ListingFailed) else len(seen.instances),
        "provider_unseen": unseen,
        "spent": {span: float(amount) for span, amount in seen.spent.items()},
        "most_together": seen.most_together,
        "note": "" if judged else TOO_MANY,
    }


def would(noted: Mapping[str, Any] | None) -> NextWorker | None:
    """What was written down of a pool's next worker; None where nothing was."""
    if noted is None:
        return None
    why = noted["blocked_by"]
    stands = None if why is None else ActionReason(Code(why["code"]), why["text"], why["numbers"])
    return NextWorker(queued=noted["queued"], at_queued=noted["at_queued"], blocked_by=stands)


def _pool(seen: Snapshot, pool: PoolSnapshot, *, judged: bool) -> dict[str, object]:
    states = Counter(each.state.value for state in WorkerState for each in seen.of(pool.id, state))
    policy = pool.policy
    return {
        "queued": pool.queued,
        "workers": dict(states),
        "jobs_held": sum(_held(each) for state in WorkerState for each in seen.of(pool.id, state)),
        "min_workers": policy.min_workers,
        "max_workers": policy.max_workers,
        "scaling": policy.scaling,
        "failures": pool.failures,
        "starts": pool.starts,
        "last_scaled_at": _instant(pool.last_scaled_at),
        "wait_until": _instant(pool.wait_until),
        "stopped_by": pool.stopped_by,
        "drained": pool.drained,
        "state": None if pool.life is None else pool.life.state.value,
        "next": _next(next_worker(seen, pool.id)) if judged else None,
    }


def _next(found: NextWorker) -> dict[str, object]:
    why = found.blocked_by
    stands = None if why is None else {"code": why.code, "text": why.text, "numbers": dict(why.numbers)}
    return {"queued": found.queued, "at_queued": found.at_queued, "blocked_by": stands}


def _held(worker: WorkerSnapshot) -> int:
    return (worker.job is not None) + len(worker.batch)


def _instant(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()


log = structlog.get_logger()
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
Wanted = Callable[[Planned], bool]


def everything(_step: Planned) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler:
    database: Database
    leadership: Leadership
    observer: Observer
    executor: Executor
    clock: Clock
    budget_s: float = 25.0
    """Seconds after which what is left of a plan waits for the next cycle, which plans it anew."""
    only_plans: bool = False
    """Safe mode: a cycle says what it would do, and nothing is done."""

    replayable_for: timedelta | None = timedelta(days=7)
    """How long it is kept what a cycle saw, so that it can be asked again; None writes none of it down."""
    shadows: dict[str, int] = field(default_factory=dict[str, int])
    """Cycles since the start in which a shadow agreed, differed or failed."""
    doubted: set[str] = field(default_factory=set[str])
    """What was said of a database that is not adopted: once is enough."""
    one_at_a_time: AbstractContextManager[Any] = field(default_factory=Lock)

    def tick(self, wanted: Wanted = everything, agreed: Collection[InstanceRef] = ()) -> Cycle:
        """One cycle, or the wanted part of it. Who does not lead, or cannot see, does nothing and says why.

        One at a time: two plans from the same look would both act on it. Instances without an owner that a person
        has agreed to end are ended at once.
        """
        with self.one_at_a_time:
            return self._tick(wanted, agreed)

    def _tick(self, wanted: Wanted, agreed: Collection[InstanceRef]) -> Cycle:
        term = self.leadership.term
        if term is None:
            return Cycle(started_at=None, epoch=None, seen=None, skipped="another replica leads")
        try:
            if self.only_plans:
                return replace(self.plan(), epoch=term.epoch)
            seen = self.observer.observe(term.epoch)
        except (StoreUnavailable, StaleWrite) as error:
            return self._blind(term.epoch, error)
        if agreed:
            seen = replace(seen, orphans={**seen.orphans, **dict.fromkeys(agreed, LONG_AGO)})
        if seen.doubt and seen.doubt not in self.doubted:
            self.doubted.add(seen.doubt)
            log.error("database.not_adopted", reason=seen.doubt)
        plan = decide(seen)
        taken = [at for at, step in enumerate(plan.steps) if wanted(step)]
        outcomes = self._carry_out([plan.steps[at] for at in taken], seen, term.epoch)
        cycle = Cycle(
            started_at=seen.now,
            epoch=term.epoch,
            seen=seen,
            outcomes=outcomes,
            shadow=self._beside(seen, plan),
        )
        self._record(cycle, recording(seen, plan, taken))
        return cycle

    def plan(self) -> Cycle:
        """What a cycle would do now; nothing is written and nobody is asked to do anything."""
        seen = self.observer.observe_readonly()
        plan = decide(seen)
        steps = tuple(Outcome(step, done=False, said="only planned") for step in plan.steps)
        return Cycle(
            started_at=seen.now, epoch=None, seen=seen, outcomes=steps, shadow=self._beside(seen, plan)
        )

    def _beside(self, seen: Snapshot, plan: Plan) -> tuple[Compared, ...]:
        """After everything was done: who waits for a worker does not wait for this."""
        found = compare(seen, plan)
        told = outcome(found)
        if told is not None:
            self.shadows[told] = self.shadows.get(told, 0) + 1
        return found

    def _carry_out(self, steps: Sequence[Planned], seen: Snapshot, epoch: int) -> tuple[Outcome, ...]:
        deadline = self.clock.monotonic() + self.budget_s
        outcomes: list[Outcome] = []
        for step in steps:
            if self.clock.monotonic() > deadline:
                outcomes.append(Outcome(step, done=False, said="no time was left in this cycle"))
                continue
            outcome = self._attempt(step, seen, epoch)
            outcomes.append(outcome)
        return tuple(outcomes)

    def _attempt(self, step: Planned, seen: Snapshot, epoch: int) -> Outcome:
        try:
            said = self.executor.act(step.action, seen, epoch)
        except (ProviderUnavailable, ProviderRejected, StaleWrite, StoreUnavailable) as error:
            log.warning("action.failed", action=type(step.action).__name__, reason=str(error))
            return Outcome(step, done=False, said=told_of(error))
        if not isinstance(step.action, Note):
            why = step.action.why
            log.info("action.done", action=type(step.action).__name__, code=why.code, why=why.text, said=said)
        return Outcome(step, done=True, said=said)

    def _blind(self, epoch: int, error: HerdsmanError) -> Cycle:
        log.warning("cycle.skipped", reason=str(error))
        return Cycle(started_at=None, epoch=epoch, seen=None, skipped=told_of(error))

    def _record(self, cycle: Cycle, whole: Recording) -> None:
        assert cycle.epoch is not None and cycle.seen is not None
        epoch, seen, saw = cycle.epoch, cycle.seen, inputs(cycle.seen)
        document = None if self.replayable_for is None else write_recording(whole)

        def write(tx: Tx) -> None:
            self.leadership.fence(tx, epoch)
            told = {**cycle.summary(), **counts(seen), "types": history_sql.queued_by_type(tx)}
            number = sql.record_cycle(tx, epoch, cycle.started_at, told, [*cycle.steps()], saw)
            if self.replayable_for is None or document is None:
                return
            if history_sql.note_snapshot(tx, number, document):
                # Those before a whole one can go together, and not sooner.
                history_sql.prune_snapshots(tx, tx.now() - self.replayable_for)

        try:
            self.database.transact(write)
        except (StoreUnavailable, StaleWrite) as error:
            log.warning("cycle.not_recorded", reason=str(error))


def recording(seen: Snapshot, plan: Plan, taken: Sequence[int]) -> Recording:
    """What was seen, and which of the planned steps were wanted."""
    planned = len(plan.steps)
    return Recording(seen=seen, planned=planned, taken=None if len(taken) == planned else tuple(taken))
