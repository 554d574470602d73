"""Workers are added up to the floor, and beyond it as the policy wants; everything that forbids it is said."""

from collections.abc import Iterable, Iterator
from math import ceil

from herdsman.core.actions import Action, Note, SpawnWorker
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import PoolLife, SeenPool, Snapshot, Unseen
from herdsman.core.phases.sizing import load_of, wanted_workers

FULL_MACHINE = "every GPU of this machine has its worker"


def scale_up(seen: Snapshot) -> Iterable[Action]:
    room = seen.room_together()
    for pool in seen.pools:
        actions = tuple(_grow(pool, seen, room if pool.shares else None))
        if room is not None and pool.shares:
            room -= sum(1 for action in actions if isinstance(action, SpawnWorker))
        yield from actions


def _grow(pool: SeenPool, seen: Snapshot, room: int | None) -> Iterator[Action]:
    """`room` is left for it under the ceiling that it shares with other pools."""
    if pool.life is not None and (pool.life.by_hand or not pool.life.open):
        yield from _left_alone(pool, pool.life, seen)
        return
    wanted, capacity = wanted_workers(pool, seen), load_of(pool, seen).capacity
    missing = wanted.grow_to - capacity
    blocked = _blocked(pool, seen) if missing > 0 else None
    blocked = blocked or _at_the_ceiling(pool, seen, missing) or _at_the_shared_ceiling(missing, room, seen)
    if blocked is not None:
        yield Note(pool.id, blocked)
        return
    policy = pool.policy
    numbers = {**wanted.terms, "wanted": wanted.grow_to, "min": policy.min_workers, "max": policy.max_workers}
    free = policy.max_workers - seen.alive(pool.id)
    for added in range(min(missing, free if room is None else min(free, room))):
        below_floor = capacity + added < policy.min_workers
        text = "fewer workers than the floor" if below_floor else "more jobs than the workers can take"
        said = text if below_floor else wanted.said or text
        yield SpawnWorker(pool.id, Finding(Code.FLOOR if below_floor else Code.DEMAND, said, numbers))


def _at_the_ceiling(pool: SeenPool, seen: Snapshot, missing: int) -> Finding | None:
    """Everything that may be alive counts, and what the ceiling keeps us from is said."""
    policy, alive = pool.policy, seen.alive(pool.id)
    asked = max(missing, ceil(pool.queued / policy.jobs_per_worker) - alive)
    if asked <= 0 or alive < policy.max_workers:
        return None
    if policy.max_workers == 0:
        return Finding(Code.KILL_SWITCH, "MAX_ACTIVE_GPUS is 0", {"queued": pool.queued})
    numbers = {"alive": alive, "max": policy.max_workers, "queued": pool.queued}
    if policy.machine_is_full:
        return Finding(Code.CEILING, FULL_MACHINE, numbers)
    return Finding(Code.CEILING, "as many workers as allowed are alive", numbers)


def _at_the_shared_ceiling(missing: int, room: int | None, seen: Snapshot) -> Finding | None:
    if missing <= 0 or room is None or room > 0:
        return None
    text = "as many workers as allowed are alive in all pools together"
    return Finding(Code.CEILING, text, {"max": seen.most_together or 0})


def _left_alone(pool: SeenPool, life: PoolLife, seen: Snapshot) -> Iterator[Action]:
    """Jobs that wait for a pool which is not ours to fill are worth a word."""
    numbers = {"queued": pool.queued}
    if pool.queued and not life.open:
        yield Note(pool.id, Finding(Code.POOL_CLOSED, f"the pool is {life.state}: start it again", numbers))
    elif pool.queued and seen.alive(pool.id) == 0:
        yield Note(pool.id, Finding(Code.SERVED_BY_HAND, "its workers are started by hand", numbers))


def _blocked(pool: SeenPool, seen: Snapshot) -> Finding | None:
    """The first of the things that forbid a spawn, or None."""
    if isinstance(seen.instances, Unseen):
        return Finding(Code.PARTIAL_SIGHT, f"the provider could not be looked at: {seen.instances.why}")
    if pool.drained is not None:
        return Finding(Code.CLUSTER_DRAINED, pool.drained, {"queued": pool.queued})
    if pool.stopped_by is not None:
        return Finding(Code.PROVIDER_REJECTED, pool.stopped_by)
    if pool.wait_until is not None and seen.now < pool.wait_until:
        wait = {"wait_s": (pool.wait_until - seen.now).total_seconds()}
        return Finding(
            Code.PROVIDER_WAITS, "the provider had nothing to give; waiting before asking again", wait
        )
    return _breaker(pool) or _budget(pool, seen)


def _breaker(pool: SeenPool) -> Finding | None:
    policy = pool.policy
    if pool.starts < policy.min_starts_to_judge or pool.failures <= policy.max_failure_rate * pool.starts:
        return None
    numbers = {"failures": pool.failures, "starts": pool.starts, "max_rate": policy.max_failure_rate}
    return Finding(Code.BREAKER_OPEN, "too many workers failed: look at one before more are spawned", numbers)


def _budget(pool: SeenPool, seen: Snapshot) -> Finding | None:
    limits = {"hour": pool.policy.budget_per_hour, "day": pool.policy.budget_per_day}
    for span, limit in limits.items():
        spent = seen.spent.get(span)
        if limit is not None and spent is not None and spent >= limit:
            numbers = {"spent_usd": float(spent), "limit_usd": float(limit)}
            return Finding(Code.BUDGET_SPENT, f"the budget of this {span} is spent", numbers)
    return None
