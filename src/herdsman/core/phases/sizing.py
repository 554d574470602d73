"""How a pool's load looks to its scaling policy."""

from collections.abc import Sequence
from datetime import timedelta

from herdsman.core.fleet import SeenPool, SeenWorker, Snapshot
from herdsman.core.scaling.observation import Load, Wanted
from herdsman.core.scaling.registry import FORECASTING, chosen
from herdsman.core.states import WorkerState


def load_of(pool: SeenPool, seen: Snapshot) -> Load:
    active = list(seen.of(pool.id, WorkerState.ACTIVE))
    starting = list(seen.of(pool.id, WorkerState.SPAWNING))
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
    return chosen(pool.policy.scaling, seen.policies)(load_of(pool, seen), pool.policy)


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
