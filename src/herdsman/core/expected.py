"""The world as actions leave it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, assert_never

from herdsman.core.actions import (
    Action,
    AttachInstance,
    BuryWorker,
    CallOffWorker,
    DrainWorker,
    EndInstance,
    EndStray,
    FailWorker,
    GrowVolume,
    MovePool,
    Note,
    OfferRevision,
    PromoteWorker,
    RetireWorker,
    ReturnJob,
    SpawnWorker,
)
from herdsman.core.fleet import SeenPool, SeenWorker, Snapshot, Unseen
from herdsman.core.instances import InstanceRef
from herdsman.core.model import PoolId, WorkerId
from herdsman.core.states import POOL, WORKER, PoolState, WorkerState


def after(seen: Snapshot, actions: Iterable[Action]) -> Snapshot:
    """The world in which every one of `actions` has succeeded."""
    changes = [action for action in actions if not isinstance(action, Note)]
    if not changes:
        return seen
    world = _World(seen)
    for action in changes:
        world.apply(action)
    return world.snapshot()


class _World:
    """A scratch copy by id: a plan may touch thousands of workers, and each must cost the same."""

    def __init__(self, seen: Snapshot) -> None:
        self._seen = seen
        self._workers = {worker.id: worker for worker in seen.workers}
        self._queued: Counter[PoolId] = Counter()
        self._ended: set[InstanceRef] = set()
        self._pools: dict[PoolId, PoolState] = {}

    def apply(self, action: Action) -> None:
        match action:
            case PromoteWorker(worker_id):
                self._move(worker_id, WorkerState.ACTIVE)
            case FailWorker(worker_id, why) | CallOffWorker(worker_id, why):
                self._move(worker_id, WorkerState.ERROR)
                self._change(worker_id, error_code=why.code.value)
            case DrainWorker(worker_id) | RetireWorker(worker_id):
                self._move(worker_id, WorkerState.TERMINATING)
            case BuryWorker(worker_id):
                self._move(worker_id, WorkerState.TERMINATED)
            case ReturnJob():
                self._queued[self._workers[action.worker_id].pool] += 1
                self._change(action.worker_id, job=None, batch=())
            case EndInstance(worker_id):
                self._change(worker_id, end_asked_at=self._seen.now)
            case AttachInstance(worker_id, ref):
                self._change(worker_id, instance_ref=ref, absent_since=None)
            case SpawnWorker(pool):
                self._spawn(pool)
            case MovePool() | OfferRevision() | GrowVolume():
                self._steer(action)
            case EndStray(ref):
                self._ended.add(ref)
            case Note():
                pass
            case _:
                assert_never(action)

    def snapshot(self) -> Snapshot:
        pools = tuple(self._pool(pool) for pool in self._seen.pools)
        seen = self._seen.instances
        left = (
            seen if isinstance(seen, Unseen) else tuple(each for each in seen if each.ref not in self._ended)
        )
        return replace(self._seen, workers=tuple(self._workers.values()), pools=pools, instances=left)

    def _steer(self, action: MovePool | OfferRevision | GrowVolume) -> None:
        match action:
            case MovePool():
                self._pools[action.pool] = action.to
            case OfferRevision():
                self._change(action.worker_id, wanted_revision=action.revision)
            case GrowVolume():
                self._unmeasure(self._workers[action.worker_id].pool)

    def _pool(self, pool: SeenPool) -> SeenPool:
        queued = pool.queued + self._queued[pool.id]
        to = self._pools.get(pool.id)
        if to is None or pool.life is None:
            return replace(pool, queued=queued)
        assert POOL.allows(pool.life.state, to), f"{pool.life.state} -> {to} was planned"
        return replace(pool, queued=queued, life=replace(pool.life, state=to))

    def _unmeasure(self, pool: PoolId) -> None:
        """How much room there is then, the workers will say."""
        for worker in [each for each in self._workers.values() if each.pool == pool]:
            self._change(worker.id, disk_free_gb=None)

    def _move(self, worker_id: WorkerId, to: WorkerState) -> None:
        here = self._workers[worker_id].state
        assert WORKER.allows(here, to), f"{here} -> {to} was planned"
        self._change(worker_id, state=to, entered_state_at=self._seen.now)

    def _change(self, worker_id: WorkerId, **values: Any) -> None:
        self._workers[worker_id] = replace(self._workers[worker_id], **values)

    def _spawn(self, pool: PoolId) -> None:
        name = WorkerId(f"planned-{len(self._workers)}")
        self._workers[name] = SeenWorker(
            id=name,
            pool=pool,
            state=WorkerState.SPAWNING,
            created_at=self._seen.now,
            entered_state_at=self._seen.now,
            instance_name=name,
        )
