"""The control loop: observe, decide, execute, record; the leader's inbox, through which other replicas ask for a cycle;
and manual operations on the fleet: the same steps as the loop's, under the same fence.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Event, Lock
from typing import Any

import structlog

from herdsman import errors
from herdsman.context import Services
from herdsman.db.connection import Database, Tx
from herdsman.fleet import history_sql, installation_sql, leader_sql
from herdsman.fleet.actions import ActionReason, Code, DrainIdleWorker, FailWorker, Note, SpawnWorker
from herdsman.fleet.decide import Compared, Plan, Planned, decide
from herdsman.fleet.decide import compare as compare_shadows
from herdsman.fleet.execute import Executor
from herdsman.fleet.leader import Leadership
from herdsman.fleet.model import InstanceRef
from herdsman.fleet.observe import Observer, raise_all
from herdsman.fleet.phases.instances import UNOWNED, Difference, differences, doubts, repairs
from herdsman.fleet.recording import Cycle, Outcome, Recording, counts, inputs, shadow_outcome
from herdsman.fleet.recording import write as write_recording
from herdsman.fleet.snapshot import ListingFailed, Snapshot
from herdsman.ids import PoolId, WorkerId
from herdsman.limits.commands import expire_pauses
from herdsman.loops.periodic import PeriodicLoop
from herdsman.ports import Clock, Threads
from herdsman.states import WorkerStatus
from herdsman.wire import told_of

log = structlog.get_logger()
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
Wanted = Callable[[Planned], bool]


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
    """How long the snapshot of a cycle is kept, so that it can be decided again; None records no snapshots."""
    shadows: dict[str, int] = field(default_factory=dict[str, int])
    """Cycles since the start in which a shadow agreed, differed or failed."""
    doubted: set[str] = field(default_factory=set[str])
    """What was logged of a database that is not adopted: once is enough."""
    one_at_a_time: AbstractContextManager[Any] = field(default_factory=Lock)

    def tick(self, wanted: Wanted = lambda _: True, agreed: Collection[InstanceRef] = ()) -> Cycle:
        """One cycle, or the wanted part of it. A replica that does not lead, or cannot observe, does nothing and says why.

        One at a time: two plans from the same snapshot would both act on it. Instances without an owner that a person
        has agreed to end are ended at once.
        """
        with self.one_at_a_time:
            term = self.leadership.term
            if term is None:
                return Cycle(started_at=None, epoch=None, seen=None, skipped="another replica leads")
            try:
                if self.only_plans:
                    return replace(self.plan(), epoch=term.epoch)
                seen = self.observer.observe(term.epoch)
            except (errors.StoreUnavailable, errors.StaleWrite) as error:
                log.warning("cycle.skipped", reason=str(error))
                return Cycle(started_at=None, epoch=term.epoch, seen=None, skipped=told_of(error))
            if agreed:
                seen = replace(seen, orphans={**seen.orphans, **dict.fromkeys(agreed, LONG_AGO)})
            if seen.doubt and seen.doubt not in self.doubted:
                self.doubted.add(seen.doubt)
                log.error("database.not_adopted", reason=seen.doubt)
            plan = decide(seen)
            taken = tuple(at for at, step in enumerate(plan.steps) if wanted(step))
            outcomes = self._execute([plan.steps[at] for at in taken], seen, term.epoch)
            # After everything was done: who waits for a worker does not wait for the comparison.
            shadow = self._compare(seen, plan)
            cycle = Cycle(started_at=seen.now, epoch=term.epoch, seen=seen, outcomes=outcomes, shadow=shadow)
            self._record(cycle, seen, plan, taken, term.epoch)
            return cycle

    def plan(self) -> Cycle:
        """What a cycle would do now; nothing is written and nobody is asked to do anything."""
        seen = self.observer.observe_readonly()
        plan = decide(seen)
        steps = tuple(Outcome(step, done=False, said="only planned") for step in plan.steps)
        shadow = self._compare(seen, plan)
        return Cycle(started_at=seen.now, epoch=None, seen=seen, outcomes=steps, shadow=shadow)

    def _compare(self, seen: Snapshot, plan: Plan) -> tuple[Compared, ...]:
        found = compare_shadows(seen, plan)
        outcome = shadow_outcome(found)
        if outcome is not None:
            self.shadows[outcome] = self.shadows.get(outcome, 0) + 1
        return found

    def _execute(self, steps: Sequence[Planned], seen: Snapshot, epoch: int) -> tuple[Outcome, ...]:
        deadline = self.clock.monotonic() + self.budget_s
        outcomes: list[Outcome] = []
        # The later steps for a worker were planned for the case that the earlier ones succeed: a machine is not ended
        # when the drain of its worker was refused.
        not_as_planned: set[WorkerId] = set()
        for step in steps:
            worker_id: WorkerId | None = getattr(step.action, "worker_id", None)
            if self.clock.monotonic() > deadline:
                outcomes.append(Outcome(step, done=False, said="no time was left in this cycle"))
                continue
            if worker_id in not_as_planned:
                outcomes.append(Outcome(step, done=False, said="an earlier step for this worker was not done"))
                continue
            action = type(step.action).__name__
            try:
                said = self.executor.act(step.action, seen, epoch)
            except (
                errors.ProviderUnavailable,
                errors.ProviderRejected,
                errors.StaleWrite,
                errors.StoreUnavailable,
            ) as error:
                log.warning("action.failed", action=action, reason=str(error))
                outcomes.append(Outcome(step, done=False, said=told_of(error)))
                if worker_id is not None:
                    not_as_planned.add(worker_id)
                continue
            if not isinstance(step.action, Note):
                reason = step.action.reason
                log.info("action.done", action=action, code=reason.code, reason=reason.text, said=said)
            outcomes.append(Outcome(step, done=True, said=said))
        return tuple(outcomes)

    def _record(self, cycle: Cycle, seen: Snapshot, plan: Plan, taken: tuple[int, ...], epoch: int) -> None:
        """What was observed and done, in one transaction; a cycle that cannot be recorded was done all the same."""
        planned, saw, document = len(plan.steps), inputs(seen, plan), None
        if self.replayable_for is not None:
            some = None if len(taken) == planned else taken
            document = write_recording(Recording(seen=seen, planned=planned, taken=some))

        def write(tx: Tx) -> None:
            self.leadership.fence(tx, epoch)
            summary = {**cycle.summary(), **counts(seen), "types": history_sql.queued_by_type(tx)}
            number = history_sql.record_cycle(tx, epoch, seen.now, summary, cycle.steps(), saw)
            if self.replayable_for is None or document is None:
                return
            if history_sql.note_snapshot(tx, number, document):
                # Those before a whole one can go together, and not sooner.
                history_sql.prune_snapshots(tx, tx.now() - self.replayable_for)

        try:
            self.database.transact(write)
        except (errors.StoreUnavailable, errors.StaleWrite) as error:
            log.warning("cycle.not_recorded", reason=str(error))


RECONCILE = "reconcile"
PATIENCE = timedelta(seconds=30)
"""How long a replica waits for the leader's answer; older requests are not acted on any more."""
LISTEN = timedelta(milliseconds=250)
TIDY = timedelta(seconds=5)
_POLL_S = 0.1


@dataclass
class LeaderInbox:
    """Requests of replicas that do not lead. Only the leader reads them; one cycle that begins after they were made
    answers all that wait."""

    services: Services
    reconciler: Reconciler
    clock: Clock
    every: timedelta = LISTEN
    _tidied: float = field(default=float("-inf"))

    def loop(self, threads: Threads | None = None) -> PeriodicLoop:
        interval = self.every.total_seconds()

        def turn() -> float:
            self.answer_waiting()
            return interval

        return PeriodicLoop(
            "leader-inbox",
            turn,
            retry_on=(errors.StoreUnavailable, errors.StaleWrite),
            on_error=lambda error: log.warning("requests.postponed", reason=str(error)),
            backoff=(interval, interval),
            clock=self.clock,
            threads=threads,
        )

    def answer_waiting(self) -> int:
        """How many were answered."""
        database, leadership = self.services.database, self.reconciler.leadership
        term = leadership.term
        if term is None:
            return 0
        if self.clock.monotonic() - self._tidied >= TIDY.total_seconds():
            # Requests that nobody waits for, and pauses that have expired; neither matters while nobody leads.
            self._tidied = self.clock.monotonic()
            expire_pauses(self.services)
            database.transact(leader_sql.prune_requests)
        listed = database.read(lambda tx: leader_sql.waiting_requests(tx, PATIENCE))
        if not listed:
            return 0

        def take(tx: Tx) -> None:
            leadership.fence(tx, term.epoch)
            leader_sql.take_request(tx, listed)

        database.transact(take)
        ran = self.reconciler.tick()
        if ran.epoch is None:  # no longer ours: whoever leads next finds them
            return 0

        def finish(tx: Tx) -> None:
            leadership.fence(tx, term.epoch)
            leader_sql.finish_request(tx, listed, ran.document())

        database.transact(finish)
        log.info("requests.answered", count=len(listed))
        return len(listed)


def ask_leader(
    services: Services, request_id: str, who: str, clock: Clock, stopping: Event, patience: timedelta = PATIENCE
) -> Mapping[str, Any] | None:
    """What the leader saw and did in a cycle of its own; None when nobody answered in time."""
    deadline = clock.monotonic() + patience.total_seconds()
    services.database.transact(lambda tx: leader_sql.ask_leader_row(tx, request_id, RECONCILE, who))
    while not stopping.is_set() and clock.monotonic() < deadline:
        found = services.database.read(lambda tx: leader_sql.find_request(tx, request_id))
        if found is None or found["done_at"] is not None:
            return None if found is None else found["outcome"]
        stopping.wait(_POLL_S)
    return None


BY_HAND = ActionReason(Code.BY_HAND, "a person asked for it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    doubts: str
    """Why nothing could be concluded; empty when all could be seen."""
    found: tuple[Difference, ...]
    left: tuple[Difference, ...]
    done: Cycle | None = None


@contextmanager
def leading(reconciler: Reconciler) -> Generator[int]:
    """The epoch of a term of our own, given back at the end. Refused while another replica leads."""
    term = reconciler.leadership.campaign()
    if term is None:
        raise errors.Conflict("another replica leads: ask it, or stop it first (herdsman leader says which)")
    try:
        yield term.epoch
    finally:
        reconciler.leadership.resign()


def spawn_worker(reconciler: Reconciler, pool: PoolId) -> str:
    """One more worker, within every limit that the loop keeps; what is to be known about it."""
    with leading(reconciler) as epoch:
        seen = _observe(reconciler, epoch)
        here = next((each for each in seen.pools if each.id == pool), None)
        if here is None or (here.life is not None and (here.life.by_hand or not here.life.open)):
            raise errors.NotFound(f"the control loop keeps no pool {pool!r}")
        return reconciler.executor.act(SpawnWorker(pool, BY_HAND), seen, epoch)


def terminate_worker(reconciler: Reconciler, worker_id: WorkerId, *, with_job: bool) -> Cycle:
    """Drain a worker and end its instance. `with_job`: even one that holds a job, which goes back to the queue."""
    with leading(reconciler) as epoch:
        seen = _observe(reconciler, epoch)
        worker = next((each for each in seen.workers if each.id == worker_id and each.alive), None)
        if worker is None:
            raise errors.NotFound(f"there is no living worker {worker_id!r}")
        if worker.job is not None and not with_job:
            job = worker.job.key.job_id
            raise errors.StaleWrite(f"worker {worker.id} holds job {job}: wait for it, or use --force")
        if worker.status in (WorkerStatus.SPAWNING, WorkerStatus.ACTIVE):
            idle = worker.status is WorkerStatus.ACTIVE and worker.job is None
            action = (DrainIdleWorker if idle else FailWorker)(worker.id, BY_HAND)
            reconciler.executor.act(action, seen, epoch)
        reconciler.leadership.campaign()  # the comparison may have taken long
        return reconciler.tick(lambda step: getattr(step.action, "worker_id", None) == worker_id)


def adopt(reconciler: Reconciler) -> None:
    """A person says that this database goes on, and no other: from here on it ends what it once started."""
    seen = reconciler.observer.observe_readonly()
    if isinstance(seen.instances, ListingFailed):
        raise errors.ProviderUnavailable(f"the provider has to be listed first: {seen.instances.reason}")
    database = reconciler.database
    known = database.read(installation_sql.find)
    if known is None:
        raise errors.NotFound("this database has not been used by a control plane yet: there is nothing to adopt")
    raise_all(database, known.highest(each.name for each in seen.instances)[0])
    database.transact(lambda tx: installation_sql.adopt(tx, installation_sql.place_of(tx)))
    log.warning("database.adopted", installation=known.id, doubt=seen.doubt)


def _observe(reconciler: Reconciler, epoch: int) -> Snapshot:
    seen = reconciler.observer.observe(epoch)
    if seen.doubt:
        raise errors.Conflict(seen.doubt)
    return seen


def compare(reconciler: Reconciler) -> Audited:
    """Compare the provider with the database and change nothing."""
    seen = reconciler.observer.observe_readonly()
    found = differences(seen)
    return Audited(doubts=doubts(seen), found=found, left=found)


def repair(reconciler: Reconciler, agreed: Collection[InstanceRef]) -> Audited:
    """Do of a cycle only what is about differences; instances without an owner are ended where a person agreed to it.

    In doubt, nothing.
    """
    with leading(reconciler):
        before = compare(reconciler)
        if before.doubts or not before.found:
            return before
        reconciler.leadership.campaign()  # the comparison may have taken long
        about = [each for each in before.found if each.kind not in UNOWNED or each.instance in agreed]
        done = reconciler.tick(lambda step: repairs(step.action, about), agreed)
        after = compare(reconciler)
        return Audited(doubts=after.doubts, found=before.found, left=after.left, done=done)
