"""How a pool's load looks to its scaling policy."""

from herdsman.core.fleet import SeenPool, Snapshot
from herdsman.core.scaling.observation import Load, Wanted
from herdsman.core.scaling.registry import chosen
from herdsman.core.states import WorkerState


def load_of(pool: SeenPool, seen: Snapshot) -> Load:
    active = list(seen.of(pool.id, WorkerState.ACTIVE))
    return Load(
        queued=pool.queued,
        active=len(active),
        spawning=sum(1 for _ in seen.of(pool.id, WorkerState.SPAWNING)),
        busy=sum(1 for worker in active if worker.job is not None),
        since_scaled=None if pool.last_scaled_at is None else seen.now - pool.last_scaled_at,
    )


def wanted_workers(pool: SeenPool, seen: Snapshot) -> Wanted:
    return chosen(pool.policy.scaling, seen.policies)(load_of(pool, seen), pool.policy)
