"""How a pool's load looks to its scaling policy."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from math import ceil

from herdsman.core.fleet import SeenPool, SeenWorker, Snapshot, Unseen
from herdsman.core.scaling.observation import Load, Wanted, bounded
from herdsman.core.scaling.registry import FORECASTING, chosen
from herdsman.core.states import WorkerState


def load_of(pool: SeenPool, seen: Snapshot) -> Load:
    active = list(seen.of(pool.id, WorkerState.ACTIVE))
    starting = [each for each in seen.of(pool.id, WorkerState.SPAWNING) if _to_come(each, pool, seen)]
    load = Load(
        queued=pool.queued,
        active=len(active),
        spawning=len(starting),
        busy=sum(1 for worker in active if worker.job is not None),
        since_scaled=None if pool.last_scaled_at is None else seen.now - pool.last_scaled_at,
    )
    # What was counted for a shadow is not told to the policy that decides: it would decide otherwise.
    told = pool.demand is not None and pool.policy.scaling in FORECASTING
    return _with_demand(load, pool, seen, active, starting) if told else load


def wanted_workers(pool: SeenPool, seen: Snapshot) -> Wanted:
    """As many as the scaling policy wants, times what the settings multiply it by."""
    policy, load = pool.policy, load_of(pool, seen)
    ask = chosen(policy.scaling, seen.policies)
    wanted = ask(load, policy)
    if wanted.grow_to > load.capacity:
        if policy.grow_by == 1:
            return wanted
        return replace(wanted, grow_to=bounded(_times(wanted.grow_to, policy.grow_by), policy))
    if policy.shrink_by == 1:
        return wanted
    keep = bounded(max(load.busy, _times(wanted.keep, policy.shrink_by)), policy)
    if keep < wanted.keep and ask(replace(load, active=keep, spawning=0), policy).grow_to > keep:
        return wanted  # who goes would be asked for again at once
    return replace(wanted, keep=keep)


def _times(workers: int, factor: float) -> int:
    """Rounded up, but not for what is lost in the arithmetic."""
    return ceil(round(workers * factor, 6))


def _to_come(worker: SeenWorker, pool: SeenPool, seen: Snapshot) -> bool:
    """A machine that does not run in time is waited for no longer, unless its creation is still in doubt (P2)."""
    late = seen.now - worker.created_at > pool.policy.spawning_grace
    listed = worker.instance_ref is not None and not isinstance(seen.instances, Unseen)
    return not (late and listed and worker.last_heartbeat is None and not seen.runs(worker))


def _with_demand(
    load: Load, pool: SeenPool, seen: Snapshot, active: Sequence[SeenWorker], starting: Sequence[SeenWorker]
) -> Load:
    """Only a policy that forecasts needs it, and there may be thousands of workers."""
    prices = [float(each.cost_per_hour) for each in active if each.cost_per_hour]
    return Load(
        queued=load.queued,
        active=load.active,
        spawning=load.spawning,
        busy=load.busy,
        since_scaled=load.since_scaled,
        held_for=tuple(_held_for(each, seen) for each in active if each.job is not None),
        starting_for=tuple(seen.now - each.created_at for each in starting),
        failures=pool.failures,
        starts=pool.starts,
        cost_per_hour=sum(prices) / len(prices) if prices else 0.0,
        demand=pool.demand,
    )


def _held_for(worker: SeenWorker, seen: Snapshot) -> timedelta:
    assert worker.job is not None
    return max(timedelta(0), seen.now - (worker.job.begun or worker.job.since))
