"""Pools that are asked for by name: what they are, how large they should be, and what keeps them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from herdsman.core.fleet import PoolLife, SeenPool, SeenWorker
from herdsman.core.model import DEFAULT_AGENT, DEFAULT_POOL, PoolId
from herdsman.core.policy import FleetPolicy
from herdsman.core.reasons import Reason
from herdsman.core.schedule import Schedule
from herdsman.core.states import PoolState, WorkerState

OPEN = (PoolState.STARTING, PoolState.RUNNING)
CLOSED = (PoolState.DRAINING, PoolState.STOPPED, PoolState.EVICTED)


class ServedBy(StrEnum):
    HERDSMAN = "herdsman"
    """Its workers are spawned and ended by the control loop."""
    HAND = "hand"
    """Its workers are those that somebody starts with `--pool`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """What holds for all pools together."""

    reserved: frozenset[str] = frozenset({DEFAULT_POOL})
    """Names of the settings' pools."""
    most: int = 8
    min_warm: int = 0
    """So many pools are left alone, however long they have been idle."""
    idle_timeout: timedelta = timedelta(minutes=5)
    """A pool that has been idle for longer makes room for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """What a pool has of its own; None is as the settings have it."""

    min_workers: int = 0
    """Kept for as long as the pool is there, used or not."""
    max_workers: int | None = None
    """None: no more than are asked for."""
    warm_buffer: int | None = None
    """Idle workers beyond those at work."""
    idle_timeout: timedelta | None = None
    max_lifetime: timedelta | None = None
    """A worker that is older is replaced."""
    schedule: Schedule = field(default_factory=Schedule)
    preload: tuple[str, ...] = ()
    """Models that its workers load before their first job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serves:
    """What the workers of a pool have loaded."""

    model: str | None = None
    adapter: str | None = None
    variant: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPool:
    """What somebody asks for. Without a `pool_id` one is made."""

    pool_id: PoolId | None = None
    agent: str = DEFAULT_AGENT
    serves: Serves = Serves()
    desired_workers: int = 1
    hold: timedelta = timedelta(minutes=10)
    rules: PoolRules = PoolRules()
    served_by: ServedBy = ServedBy.HERDSMAN
    isolated: bool = False
    """It has a stream of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    pool_id: PoolId
    agent: str
    serves: Serves
    state: PoolState
    reason: Reason
    desired_workers: int
    spawned_workers: int
    started_at: datetime
    last_heartbeat: datetime | None
    used_at: datetime | None
    hold: timedelta
    revision: int
    rules: PoolRules
    served_by: ServedBy
    isolated: bool
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStanding:
    """A pool with what there is of it now."""

    pool: Pool
    workers: Mapping[WorkerState, int]
    """Those that live, by their states."""
    at_revision: int = 0
    """Active workers that serve what the pool serves now."""
    queued: int = 0
    troubles: tuple[str, ...] = ()
    """Why workers could not load what they were told to."""

    @property
    def swapping(self) -> bool:
        return self.pool.state in OPEN and self.at_revision < self.workers.get(WorkerState.ACTIVE, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNews:
    """What the control loop notes of a pool."""

    pool_id: PoolId
    spawned_workers: int
    last_heartbeat: datetime | None
    used_at: datetime | None


def policy_of(base: FleetPolicy, pool: Pool, used: datetime, local: Mapping[str, datetime]) -> FleetPolicy:
    """The settings' rules with what the pool has of its own; `local` has the time in each zone of its schedule.

    Without a schedule `min_workers` are always kept and `desired_workers` while it is held. A schedule takes
    the place of both. The settings' ceiling stays one.
    """
    least, most = _sizes(pool, used, local)
    rules = pool.rules
    ceiling = min(base.max_workers, max(least, most))
    sized = replace(base, min_workers=min(least, ceiling), max_workers=ceiling)
    if rules.warm_buffer is not None:
        sized = replace(sized, scaling="workload", idle_workers=rules.warm_buffer)
    if rules.idle_timeout is not None:
        short = min(base.overcapacity_idle_timeout, rules.idle_timeout)
        sized = replace(sized, idle_timeout=rules.idle_timeout, overcapacity_idle_timeout=short)
    return sized


def hold_ends_at(pool: Pool, used: datetime) -> datetime | None:
    """A pool that keeps workers by its rules is not ended for being idle; nor is one that others serve."""
    kept = pool.rules.min_workers > 0 or pool.rules.schedule
    return None if kept or pool.served_by is ServedBy.HAND else used + pool.hold


def last_used(pool: Pool, workers: Iterable[SeenWorker], now: datetime) -> datetime:
    """A pool is used while one of its workers holds a job; the end of the last one is remembered."""
    mine = [each for each in workers if each.pool == pool.pool_id]
    if any(each.job is not None for each in mine):
        return now
    ends = [each.idle_since for each in mine if each.jobs_done and each.idle_since is not None]
    return max([pool.started_at, *([] if pool.used_at is None else [pool.used_at]), *ends])


def with_life(
    seen: SeenPool,
    pool: Pool,
    *,
    used: datetime,
    waiting: bool,
    local: Mapping[str, datetime],
) -> SeenPool:
    """A pool's fleet as it was seen, with the pool's own rules and life."""
    life = PoolLife(
        state=pool.state,
        revision=pool.revision,
        hold_ends_at=hold_ends_at(pool, used),
        waiting=waiting,
        ended_by_hold=pool.reason is Reason.HOLD_OVER,
        max_lifetime=pool.rules.max_lifetime,
        by_hand=pool.served_by is ServedBy.HAND,
    )
    policy = policy_of(seen.policy, pool, used, local)
    if life.by_hand:
        policy = replace(policy, require_gpu=False)
    return replace(seen, policy=policy, life=life, shares=not life.by_hand)


def undeclared(seen: SeenPool) -> SeenPool:
    """A pool that only its workers name. Those that a person started serve like any others; those of ours, whose pool
    has gone from the settings, are let go when they are idle."""
    policy = replace(seen.policy, min_workers=0, max_workers=0, require_gpu=False)
    life = PoolLife(state=PoolState.RUNNING, revision=0, by_hand=True, declared=False)
    return replace(seen, policy=policy, life=life)


def news_of(
    pool: Pool, workers: Iterable[SeenWorker], now: datetime, *, often: timedelta = timedelta(seconds=10)
) -> PoolNews | None:
    """What has changed enough to be written down; None when nothing has."""
    mine = [each for each in workers if each.pool == pool.pool_id]
    there = sum(1 for each in mine if each.state in (WorkerState.SPAWNING, WorkerState.ACTIVE))
    beat = max((each.last_heartbeat for each in mine if each.last_heartbeat is not None), default=None)
    used = last_used(pool, mine, now)
    moved = _moved(pool.last_heartbeat, beat, often) or _moved(pool.used_at or pool.started_at, used, often)
    if there == pool.spawned_workers and not moved:
        return None
    return PoolNews(pool_id=pool.pool_id, spawned_workers=there, last_heartbeat=beat, used_at=used)


def _sizes(pool: Pool, used: datetime, local: Mapping[str, datetime]) -> tuple[int, int]:
    rules = pool.rules
    asked = max(rules.min_workers, pool.desired_workers)
    most = asked if rules.max_workers is None else rules.max_workers
    if rules.schedule:
        sizes = rules.schedule.sizes(local)
        return asked if sizes.least is None else sizes.least, most if sizes.most is None else sizes.most
    now = local["UTC"]
    held = now <= used + pool.hold
    return (asked if held else rules.min_workers), most


def _moved(noted: datetime | None, seen: datetime | None, often: timedelta) -> bool:
    return seen is not None and (noted is None or seen - noted >= often)
