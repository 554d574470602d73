"""The control loop: observe, decide, act, record."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

import structlog

from herdsman.control.act import Hands
from herdsman.control.cycle import Cycle, Outcome
from herdsman.control.inputs import counts, inputs
from herdsman.control.leadership import Leadership
from herdsman.control.observe import Observer
from herdsman.control.shadows import outcome
from herdsman.core.actions import Note
from herdsman.core.decide import Plan, Planned, decide
from herdsman.core.errors import (
    HerdsmanError,
    ProviderRejected,
    ProviderUnavailable,
    StaleWrite,
    StoreUnavailable,
)
from herdsman.core.fleet import Snapshot
from herdsman.core.instances import InstanceRef
from herdsman.core.recording import Recording
from herdsman.core.recording import write as write_recording
from herdsman.core.shadow import Compared, compare
from herdsman.db.connection import Database, Tx
from herdsman.ports import Clock
from herdsman.store import fleet, queues, sights
from herdsman.wire.problems import told_of

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
    hands: Hands
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
            seen = self.observer.look(term.epoch)
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
        seen = self.observer.glance()
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
            said = self.hands.act(step.action, seen, epoch)
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
            told = {**cycle.summary(), **counts(seen), "types": queues.by_type(tx)}
            number = fleet.record_cycle(tx, epoch, cycle.started_at, told, [*cycle.steps()], saw)
            if self.replayable_for is None or document is None:
                return
            if sights.note(tx, number, document):
                # Those before a whole one can go together, and not sooner.
                sights.prune(tx, tx.now() - self.replayable_for)

        try:
            self.database.transact(write)
        except (StoreUnavailable, StaleWrite) as error:
            log.warning("cycle.not_recorded", reason=str(error))


def recording(seen: Snapshot, plan: Plan, taken: Sequence[int]) -> Recording:
    """What was seen, and which of the planned steps were wanted."""
    planned = len(plan.steps)
    return Recording(seen=seen, planned=planned, taken=None if len(taken) == planned else tuple(taken))
