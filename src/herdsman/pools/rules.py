"""Rules of pools, on plain values: schedules by wall clock, sizes, how long a pool is kept, checks of requests."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from herdsman.errors import InvalidRequest
from herdsman.fleet.snapshot import PoolLife, PoolSnapshot, WorkerSnapshot
from herdsman.ids import DEFAULT_AGENT, DEFAULT_POOL, LONGEST, PoolId, check_model, check_name
from herdsman.states import PoolStatus, Reason, WorkerStatus

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WHOLE_DAY = 24 * 60
MOST_WINDOWS = 32
_CLOCK = re.compile(r"([01]?[0-9]|2[0-4]):([0-5][0-9])", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many workers at least and at most; None leaves it as it is."""

    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """On these days, from the one minute until before the other. One that ends before it begins ends a day later."""

    days: frozenset[int]
    """0 is Monday. A window over midnight belongs to the day on which it begins."""
    begin: int
    """In minutes since midnight."""
    end: int
    zone: str = "UTC"
    sizes: Sizes = Sizes()

    def covers(self, local: datetime) -> bool:
        """`local` is the time of the window's own zone. An hour that a clock skips or repeats is as the clock shows it."""
        minute, today = local.hour * 60 + local.minute, local.weekday()
        if self.begin < self.end:
            return today in self.days and self.begin <= minute < self.end
        yesterday = (today - 1) % len(DAYS)
        return (today in self.days and minute >= self.begin) or (yesterday in self.days and minute < self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    windows: tuple[Window, ...] = ()
    outside: Sizes = Sizes(least=0)

    def __bool__(self) -> bool:
        return bool(self.windows)

    @property
    def zones(self) -> frozenset[str]:
        return frozenset(window.zone for window in self.windows)

    def sizes(self, local: Mapping[str, datetime]) -> Sizes:
        """`local` has the time of each zone. Where windows overlap, the most workers that any of them asks for."""
        open_now = [each.sizes for each in self.windows if each.covers(local[each.zone])]
        if not open_now:
            return self.outside
        least = (each.least for each in open_now if each.least is not None)
        most = (each.most for each in open_now if each.most is not None)
        return Sizes(least=max(least, default=None), most=max(most, default=None))


def parse_days(text: str) -> frozenset[int]:
    """`mon-fri`, `sat,sun`, `fri-mon`, `daily`."""
    if text.strip().lower() == "daily":
        return frozenset(range(len(DAYS)))
    known, found = {name: number for number, name in enumerate(DAYS)}, set[int]()
    for part in text.lower().split(","):
        first, dash, last = part.partition("-")
        begin, end = known.get(first.strip()), known.get((last if dash else first).strip())
        if begin is None or end is None:
            raise InvalidRequest(f"days is {text!r}: write days such as mon-fri or sat,sun, or daily")
        found |= {(begin + step) % len(DAYS) for step in range((end - begin) % len(DAYS) + 1)}
    return frozenset(found)


def parse_clock(field: str, text: str) -> int:
    """`08:30`, in minutes since midnight; `24:00` is the end of the day."""
    found = _CLOCK.fullmatch(text)
    minutes = int(found[1]) * 60 + int(found[2]) if found else WHOLE_DAY + 1
    if minutes > WHOLE_DAY:
        raise InvalidRequest(f"{field} is {text!r}: it must be a time of day such as 08:30, at most 24:00")
    return minutes


def shown_days(days: Iterable[int]) -> str:
    return ",".join(DAYS[day] for day in sorted(days))


def shown_clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


OPEN = (PoolStatus.STARTING, PoolStatus.RUNNING)
CLOSED = (PoolStatus.DRAINING, PoolStatus.STOPPED, PoolStatus.EVICTED)


class ServedBy(StrEnum):
    HERDSMAN = "herdsman"
    """Its workers are spawned and ended by the control loop."""
    HAND = "hand"
    """Its workers are those that somebody starts with `--pool`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
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
    """A request for a pool. Without a `pool_id` one is made."""

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
    status: PoolStatus
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
class PoolReport:
    """A pool with its workers and its queue now."""

    pool: Pool
    workers: Mapping[WorkerStatus, int]
    at_revision: int = 0
    """Active workers that serve what the pool serves now."""
    queued: int = 0
    troubles: tuple[str, ...] = ()
    """Why workers could not load what they were assigned."""

    @property
    def swapping(self) -> bool:
        return self.pool.status in OPEN and self.at_revision < self.workers.get(WorkerStatus.ACTIVE, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNews:
    pool_id: PoolId
    spawned_workers: int
    last_heartbeat: datetime | None
    used_at: datetime | None


def last_used(pool: Pool, workers: Iterable[WorkerSnapshot], now: datetime) -> datetime:
    """A pool is used while one of its workers holds a job; the end of the last one is remembered."""
    mine = [each for each in workers if each.pool == pool.pool_id]
    if any(each.job is not None for each in mine):
        return now
    ends = [each.idle_since for each in mine if each.jobs_done and each.idle_since is not None]
    return max([pool.started_at, *([] if pool.used_at is None else [pool.used_at]), *ends])


def with_life(
    observed: PoolSnapshot, pool: Pool, *, used: datetime, waiting: bool, local: Mapping[str, datetime]
) -> PoolSnapshot:
    """A pool's fleet as it was observed, with the pool's own rules and life."""
    by_hand = pool.served_by is ServedBy.HAND
    # A pool that keeps workers by its rules is not ended for being idle; nor is one that others serve.
    kept = pool.rules.min_workers > 0 or pool.rules.schedule or by_hand
    life = PoolLife(
        status=pool.status,
        revision=pool.revision,
        hold_ends_at=None if kept else used + pool.hold,
        waiting=waiting,
        ended_by_hold=pool.reason is Reason.HOLD_OVER,
        max_lifetime=pool.rules.max_lifetime,
        by_hand=by_hand,
    )
    # The settings' rules with what the pool has of its own; `local` has the time in each zone of
    # its schedule. Without a schedule `min_workers` are always kept and `desired_workers` while it
    # is held. A schedule takes the place of both. The settings' ceiling stays one.
    rules = pool.rules
    least = max(rules.min_workers, pool.desired_workers)
    most = least if rules.max_workers is None else rules.max_workers
    if rules.schedule:
        sizes = rules.schedule.sizes(local)
        least = least if sizes.least is None else sizes.least
        most = most if sizes.most is None else sizes.most
    elif local["UTC"] > used + pool.hold:
        least = rules.min_workers
    ceiling = min(observed.policy.max_workers, max(least, most))
    sized = replace(observed.policy, min_workers=min(least, ceiling), max_workers=ceiling)
    if rules.warm_buffer is not None:
        sized = replace(sized, scaling="workload", idle_workers=rules.warm_buffer)
    if rules.idle_timeout is not None:
        short = min(observed.policy.overcapacity_idle_timeout, rules.idle_timeout)
        sized = replace(sized, idle_timeout=rules.idle_timeout, overcapacity_idle_timeout=short)
    policy = sized
    if life.by_hand:
        policy = replace(policy, require_gpu=False)
    return replace(observed, policy=policy, life=life, shares=not life.by_hand)


def undeclared(observed: PoolSnapshot) -> PoolSnapshot:
    """A pool that only its workers name. Those that a person started serve like any others; those of ours, whose pool
    has gone from the settings, are drained when they are idle."""
    policy = replace(observed.policy, min_workers=0, max_workers=0, require_gpu=False)
    life = PoolLife(status=PoolStatus.RUNNING, revision=0, by_hand=True, declared=False)
    return replace(observed, policy=policy, life=life)


OFTEN = timedelta(seconds=10)
"""More often than this, a heartbeat and a use are not written down."""


def news_of(pool: Pool, workers: Iterable[WorkerSnapshot], now: datetime) -> PoolNews | None:
    """What has changed enough to be written down; None when nothing has."""
    mine = [each for each in workers if each.pool == pool.pool_id]
    there = sum(1 for each in mine if each.status in (WorkerStatus.SPAWNING, WorkerStatus.ACTIVE))
    beat = max((each.last_heartbeat for each in mine if each.last_heartbeat is not None), default=None)
    used = last_used(pool, mine, now)
    moved = _moved(pool.last_heartbeat, beat) or _moved(pool.used_at or pool.started_at, used)
    if there == pool.spawned_workers and not moved:
        return None
    return PoolNews(pool_id=pool.pool_id, spawned_workers=there, last_heartbeat=beat, used_at=used)


def _moved(noted: datetime | None, observed: datetime | None) -> bool:
    return observed is not None and (noted is None or observed - noted >= OFTEN)


MOST_WORKERS = 64
MOST_PRELOADS = 64
LONGEST_HOLD = timedelta(hours=2)
LONGEST_SPAN = timedelta(days=365)


def check_pool(new: NewPool) -> None:
    if new.pool_id is not None:
        check_name("pool_id", new.pool_id)
    check_name("agent_name", new.agent, LONGEST["agent"])
    check_serves(new.serves)
    check_size("desired_workers", new.desired_workers)
    _check_span("hold_seconds", new.hold, LONGEST_HOLD)
    rules = new.rules
    for name, value in (
        ("min_workers", rules.min_workers),
        ("max_workers", rules.max_workers),
        ("warm_buffer", rules.warm_buffer),
    ):
        if value is not None:
            check_size(name, value)
    for name, span in (("idle_timeout_seconds", rules.idle_timeout), ("max_lifetime_seconds", rules.max_lifetime)):
        if span is not None:
            _check_span(name, span, LONGEST_SPAN)
    if len(rules.preload) > MOST_PRELOADS:
        raise InvalidRequest(f"{len(rules.preload)} models are to be preloaded, the limit is {MOST_PRELOADS}")
    for model in rules.preload:
        check_model("preload", model)
    check_schedule(rules.schedule)
    most = rules.max_workers
    if most is not None and most < max(new.desired_workers, new.rules.min_workers):
        raise InvalidRequest(
            f"max_workers is {most}, less than desired_workers ({new.desired_workers})"
            f" or min_workers ({new.rules.min_workers}): raise it"
        )


def check_schedule(schedule: Schedule) -> None:
    if len(schedule.windows) > MOST_WINDOWS:
        raise InvalidRequest(f"the schedule has {len(schedule.windows)} windows, the limit is {MOST_WINDOWS}")
    for window in schedule.windows:
        if window.begin == window.end or window.begin == WHOLE_DAY or window.end == 0:
            raise InvalidRequest(
                "a window of the schedule has no length: a whole day is from 00:00 to 24:00,"
                " and one that ends at midnight ends at 24:00"
            )
        for size in (window.sizes.least, window.sizes.most):
            if size is not None:
                check_size("a size of the schedule", size)
    for sizes in (schedule.outside, *(each.sizes for each in schedule.windows)):
        if sizes.least is not None and sizes.most is not None and sizes.least > sizes.most:
            raise InvalidRequest(f"min is {sizes.least} and max is {sizes.most}: min must not exceed max")


def check_serves(serves: Serves) -> None:
    for name, value in (("model_id", serves.model), ("adapter", serves.adapter)):
        if value is not None:
            check_model(name, value)
    if serves.variant is not None:
        check_name("variant", serves.variant)


def check_size(field: str, value: int) -> None:
    if not 0 <= value <= MOST_WORKERS:
        raise InvalidRequest(f"{field} is {value}: it must be from 0 to {MOST_WORKERS}")


def _check_span(field: str, span: timedelta, longest: timedelta) -> None:
    if not timedelta(0) < span <= longest:
        raise InvalidRequest(
            f"{field} is {span.total_seconds():g}: it must be more than 0 and at most {longest.total_seconds():g}"
        )
