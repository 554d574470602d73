"""The life of pools that were created by name: started, kept, drained, and changed to another model."""

from collections.abc import Iterable, Iterator

from herdsman.fleet.actions import (
    Action,
    ActionReason,
    AssignModelRevision,
    CancelSpawn,
    Code,
    DrainWorker,
    MovePool,
    RequeueJob,
)
from herdsman.fleet.snapshot import ListingFailed, PoolLife, PoolSnapshot, Snapshot
from herdsman.jobs.model import FailureClass
from herdsman.states import PoolState, WorkerState

SHARE = 4
"""At most one in so many workers of a pool loads another model at a time; the others serve."""


def keep_pools(seen: Snapshot) -> Iterable[Action]:
    """A pool runs when it has a worker, and drains when nobody has used it for as long as it is held."""
    for pool, life in _named(seen):
        wanted, ends_at = pool.queued > 0 or life.waiting, life.hold_ends_at
        busy = any(each.job for each in seen.of(pool.id, *WorkerState))
        # A provider that cannot be listed is no evidence that nobody uses the pool.
        unused = not wanted and not busy and not isinstance(seen.instances, ListingFailed)
        if life.open and unused and ends_at is not None and seen.now >= ends_at:
            idle = (seen.now - ends_at).total_seconds()
            why = ActionReason(Code.HOLD_OVER, "nobody used it for as long as it is held", {"over_s": idle})
            yield MovePool(pool.id, PoolState.DRAINING, why)
        elif life.state is PoolState.STARTING and any(seen.of(pool.id, WorkerState.ACTIVE)):
            yield MovePool(
                pool.id, PoolState.RUNNING, ActionReason(Code.POOL_SERVED, "a worker of it is there")
            )
        elif life.state is PoolState.DRAINING and life.ended_by_hold and wanted:
            why = ActionReason(Code.POOL_WANTED, "jobs came while it was drained", {"queued": pool.queued})
            yield MovePool(pool.id, PoolState.RUNNING, why)


def retire(seen: Snapshot) -> Iterable[Action]:
    """Drain the workers of a closed pool, and one at a time of those that have lived long enough."""
    if isinstance(seen.instances, ListingFailed):
        return
    for pool, life in _named(seen):
        if not life.open:
            yield from _drain(pool, life, seen)
        elif life.max_lifetime is not None:
            yield from _renew(pool, life, seen)


def close_pools(seen: Snapshot) -> Iterable[Action]:
    """A pool that drains has stopped when its last worker is gone."""
    for pool, life in _named(seen):
        if life.state is PoolState.DRAINING and seen.alive(pool.id) == 0:
            yield MovePool(
                pool.id, PoolState.STOPPED, ActionReason(Code.POOL_EMPTY, "its last worker is gone")
            )


def assign_revisions(seen: Snapshot) -> Iterable[Action]:
    """Workers follow their pool to another model a few at a time, so that the others go on serving."""
    for pool, life in _named(seen):
        if not life.open:
            continue
        active = list(seen.of(pool.id, WorkerState.ACTIVE))
        loading = sum(1 for each in active if each.revision < each.wanted_revision)
        behind = [each for each in active if max(each.revision, each.wanted_revision) < life.revision]
        numbers = {"revision": life.revision, "behind": len(behind), "loading": loading}
        why = ActionReason(Code.SWAP, "its pool serves another model now", numbers)
        # Idle ones first: they need not finish anything.
        behind.sort(key=lambda each: (each.job is not None, each.id))
        for worker in behind[: max(1, len(active) // SHARE) - loading]:
            yield AssignModelRevision(worker.id, life.revision, why)


def _named(seen: Snapshot) -> Iterator[tuple[PoolSnapshot, PoolLife]]:
    return ((pool, pool.life) for pool in seen.pools if pool.life is not None)


def _drain(pool: PoolSnapshot, life: PoolLife, seen: Snapshot) -> Iterator[Action]:
    why = ActionReason(Code.POOL_CLOSED, f"its pool is {life.state}")
    evicted = life.state is PoolState.EVICTED
    for worker in seen.of(pool.id, WorkerState.SPAWNING):
        if worker.job is None or evicted:
            yield CancelSpawn(worker.id, why)
    for worker in seen.of(pool.id, WorkerState.ACTIVE):
        yield DrainWorker(worker.id, why)
    if evicted:
        for worker in seen.of(pool.id, WorkerState.SPAWNING, WorkerState.ACTIVE, WorkerState.TERMINATING):
            for job in (worker.job, *worker.batch):
                if job is not None:  # an evicted pool is not waited for; its jobs are not to blame
                    yield RequeueJob(job.key, worker.id, why, FailureClass.INTERRUPTED)


def _renew(pool: PoolSnapshot, life: PoolLife, seen: Snapshot) -> Iterator[Action]:
    """Only while the fleet is whole: nobody comes or goes, and the one that goes is surely there."""
    assert life.max_lifetime is not None
    restless = (WorkerState.SPAWNING, WorkerState.TERMINATING, WorkerState.ERROR)
    if any(seen.of(pool.id, *restless)):
        return
    born = seen.now - life.max_lifetime
    old = [
        each
        for each in seen.of(pool.id, WorkerState.ACTIVE)
        if each.created_at < born and (each.instance_name is not None and each.absent_since is None)
    ]
    for worker in sorted(old, key=lambda each: (each.created_at, each.id))[:1]:
        numbers = {
            "age_s": (seen.now - worker.created_at).total_seconds(),
            "limit_s": life.max_lifetime.total_seconds(),
        }
        yield DrainWorker(worker.id, ActionReason(Code.LIFETIME, "it has lived as long as it may", numbers))
