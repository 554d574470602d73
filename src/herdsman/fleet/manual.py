"""Manual operations on the fleet: the same steps as the loop's, under the same fence."""

from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from herdsman.errors import Conflict, NotFound, ProviderUnavailable, StaleWrite
from herdsman.fleet import installation_sql
from herdsman.fleet.actions import ActionReason, Code, DrainIdleWorker, FailWorker, SpawnWorker
from herdsman.fleet.model import InstanceRef
from herdsman.fleet.observe import raise_all
from herdsman.fleet.phases.instances import UNOWNED, Difference, differences, doubts, repairs
from herdsman.fleet.reconcile import Reconciler
from herdsman.fleet.recording import Cycle
from herdsman.fleet.snapshot import ListingFailed, Snapshot
from herdsman.ids import PoolId, WorkerId
from herdsman.states import WorkerStatus

log = structlog.get_logger()
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
        raise Conflict("another replica leads: ask it, or stop it first (herdsman leader says which)")
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
            raise NotFound(f"the control loop keeps no pool {pool!r}")
        return reconciler.executor.act(SpawnWorker(pool, BY_HAND), seen, epoch)


def terminate_worker(reconciler: Reconciler, worker_id: WorkerId, *, with_job: bool) -> Cycle:
    """Drain a worker and end its instance. `with_job`: even one that holds a job, which goes back to the queue."""
    with leading(reconciler) as epoch:
        seen = _observe(reconciler, epoch)
        worker = next((each for each in seen.workers if each.id == worker_id and each.alive), None)
        if worker is None:
            raise NotFound(f"there is no living worker {worker_id!r}")
        if worker.job is not None and not with_job:
            job = worker.job.key.job_id
            raise StaleWrite(f"worker {worker.id} holds job {job}: wait for it, or use --force")
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
        raise ProviderUnavailable(f"the provider has to be listed first: {seen.instances.why}")
    database = reconciler.database
    known = database.read(installation_sql.find)
    if known is None:
        raise NotFound("this database has not been used by a control plane yet: there is nothing to adopt")
    raise_all(database, known.highest(each.name for each in seen.instances)[0])
    database.transact(lambda tx: installation_sql.adopt(tx, installation_sql.place_of(tx)))
    log.warning("database.adopted", installation=known.id, doubt=seen.doubt)


def _observe(reconciler: Reconciler, epoch: int) -> Snapshot:
    seen = reconciler.observer.observe(epoch)
    if seen.doubt:
        raise Conflict(seen.doubt)
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
