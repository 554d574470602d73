"""What would have to be different for one more worker: asked of the same judgement that decides."""

from dataclasses import dataclass, replace

from herdsman.core.actions import Note, SpawnWorker
from herdsman.core.decide import decide
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import SeenPool, Snapshot, Unseen
from herdsman.core.instances import Instance, InstanceState
from herdsman.core.model import PoolId


@dataclass(frozen=True, slots=True, kw_only=True)
class NextWorker:
    queued: int
    at_queued: int | None
    """The shortest queue for which a worker would be added; None when no queue is long enough."""
    blocked_by: Finding | None
    """What would stand in the way even then."""


def next_worker(seen: Snapshot, pool: PoolId) -> NextWorker:
    """A longer queue never asks for fewer workers, so the shortest one that asks for more can be halved in on."""
    here = _pool(seen, pool)
    free = _unblocked(seen, pool)
    policy = here.policy
    longest = here.queued + (policy.jobs_per_worker + 1) * (policy.max_workers + len(seen.workers) + 2)
    grows = _spawns(free, pool, longest)
    asks = _shortest(free, pool, here.queued, longest) if grows else longest
    return NextWorker(
        queued=here.queued, at_queued=asks if grows else None, blocked_by=_obstacle(seen, pool, asks)
    )


def _shortest(free: Snapshot, pool: PoolId, low: int, high: int) -> int:
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _spawns(free, pool, middle) else (middle + 1, high)
    return low


def _spawns(seen: Snapshot, pool: PoolId, queued: int) -> bool:
    actions = decide(_with(seen, pool, queued=queued)).actions
    return any(isinstance(action, SpawnWorker) and action.pool == pool for action in actions)


def _obstacle(seen: Snapshot, pool: PoolId, queued: int) -> Finding | None:
    actions = decide(_with(seen, pool, queued=queued)).actions
    said = next((each.why for each in actions if isinstance(each, Note) and each.about == pool), None)
    if said is not None or _spawns(seen, pool, queued):
        return said
    policy = _pool(seen, pool).policy
    return Finding(
        Code.ENOUGH,
        "the fleet keeps its size for a while after a change",
        {"interval_s": policy.min_scaling_interval.total_seconds(), "alive": seen.alive(pool)},
    )


def _unblocked(seen: Snapshot, pool: PoolId) -> Snapshot:
    """The same fleet where only its size and its ceiling count."""
    open_pool = _with(seen, pool, wait_until=None, stopped_by=None, failures=0, starts=0, last_scaled_at=None)
    listed = _as_if_listed(seen) if isinstance(seen.instances, Unseen) else seen.instances
    return replace(open_pool, spent={}, instances=listed, doubt="")


def _as_if_listed(seen: Snapshot) -> tuple[Instance, ...]:
    return tuple(
        Instance(ref=worker.instance_ref, name=worker.instance_name, state=InstanceState.RUNNING)
        for worker in seen.workers
        if worker.alive and worker.instance_ref is not None and worker.instance_name is not None
    )


def _with(seen: Snapshot, pool: PoolId, **changed: object) -> Snapshot:
    pools = tuple(replace(each, **changed) if each.id == pool else each for each in seen.pools)  # type: ignore[arg-type]
    return replace(seen, pools=pools)


def _pool(seen: Snapshot, pool: PoolId) -> SeenPool:
    return next(each for each in seen.pools if each.id == pool)
