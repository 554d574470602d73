"""Workers are added up to the floor, and beyond it as the policy wants; everything that forbids it is said."""

from collections.abc import Iterable, Iterator
from math import ceil

from herdsman.core.actions import Action, Note, SpawnWorker
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import SeenPool, Snapshot, Unseen
from herdsman.core.phases.sizing import load_of, wanted_workers


def scale_up(seen: Snapshot) -> Iterable[Action]:
    for pool in seen.pools:
        yield from _grow(pool, seen)


def _grow(pool: SeenPool, seen: Snapshot) -> Iterator[Action]:
    wanted, capacity = wanted_workers(pool, seen), load_of(pool, seen).capacity
    missing = wanted.grow_to - capacity
    blocked = _blocked(pool, seen) if missing > 0 else None
    blocked = blocked or _at_the_ceiling(pool, seen, missing)
    if blocked is not None:
        yield Note(pool.id, blocked)
        return
    policy = pool.policy
    numbers = {**wanted.terms, "wanted": wanted.grow_to, "min": policy.min_workers, "max": policy.max_workers}
    for added in range(min(missing, policy.max_workers - seen.alive(pool.id))):
        below_floor = capacity + added < policy.min_workers
        text = "fewer workers than the floor" if below_floor else "more jobs than the workers can take"
        yield SpawnWorker(pool.id, Finding(Code.FLOOR if below_floor else Code.DEMAND, text, numbers))


def _at_the_ceiling(pool: SeenPool, seen: Snapshot, missing: int) -> Finding | None:
    """Everything that may be alive counts, and what the ceiling keeps us from is said."""
    policy, alive = pool.policy, seen.alive(pool.id)
    asked = max(missing, ceil(pool.queued / policy.jobs_per_worker) - alive)
    if asked <= 0 or alive < policy.max_workers:
        return None
    if policy.max_workers == 0:
        return Finding(Code.KILL_SWITCH, "MAX_ACTIVE_GPUS is 0", {"queued": pool.queued})
    numbers = {"alive": alive, "max": policy.max_workers, "queued": pool.queued}
    return Finding(Code.CEILING, "as many workers as allowed are alive", numbers)


def _blocked(pool: SeenPool, seen: Snapshot) -> Finding | None:
    """The first of the things that forbid a spawn, or None."""
    if isinstance(seen.instances, Unseen):
        return Finding(Code.PARTIAL_SIGHT, f"the provider could not be looked at: {seen.instances.why}")
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
