"""What the fleet cost: each instance's time and price, split into what was work and what was waiting."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from threading import Lock

from herdsman.concurrency import TtlCache
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.fleet import stats_sql
from herdsman.fleet.stats_sql import Effort, Stay
from herdsman.fleet.wire import CostOut, MoneyOut
from herdsman.ports import Clock

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
IDLE = "(idle)"


class By(StrEnum):
    DAY = "day"
    POOL = "pool"
    TYPE = "type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Money, under one heading."""

    key: str
    busy: Decimal
    idle: Decimal

    @property
    def total(self) -> Decimal:
        return self.busy + self.idle


def lines(
    by: By, stays: Iterable[Stay], efforts: Iterable[Effort], since: datetime, until: datetime
) -> tuple[Line, ...]:
    """The sum of the lines is the sum of the stays, whichever way they are grouped."""
    busy: dict[str, Decimal] = {}
    idle: dict[str, Decimal] = {}
    for piece in _pieces(stays, efforts, since, until):
        key = {By.DAY: piece.day, By.POOL: piece.pool, By.TYPE: piece.type or IDLE}[by]
        kept = idle if piece.type is None else busy
        kept[key] = kept.get(key, Decimal(0)) + piece.cost
    return tuple(
        Line(key=key, busy=busy.get(key, Decimal(0)), idle=idle.get(key, Decimal(0)))
        for key in sorted(busy.keys() | idle.keys())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    since: datetime
    until: datetime
    per_hour: Decimal
    """What the instances of this moment cost."""
    lines: tuple[Line, ...]

    @property
    def total(self) -> Decimal:
        return sum((line.total for line in self.lines), Decimal(0))


def bill(services: Services, by: By, days: int) -> Bill:
    """Of so many days, in UTC, today's included."""
    return services.database.read(lambda tx: _bill(tx, by, days))


def _bill(tx: Tx, by: By, days: int) -> Bill:
    until = tx.now()
    since = midnight(until) - (days - 1) * DAY
    stays = stats_sql.instance_stays(tx, since)
    efforts = stats_sql.instance_efforts(tx, sorted({stay.worker_id for stay in stays}), since)
    return Bill(
        since=since,
        until=until,
        per_hour=stats_sql.hourly_rate(tx),
        lines=lines(by, stays, efforts, since, until),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Part of a stay, on one day and with one job or none."""

    day: str
    pool: str
    type: str | None
    cost: Decimal


def _pieces(
    stays: Iterable[Stay], efforts: Iterable[Effort], since: datetime, until: datetime
) -> Iterator[Piece]:
    by_worker: dict[str, list[Effort]] = {}
    for effort in sorted(efforts, key=lambda each: each.started_at):
        by_worker.setdefault(effort.worker_id, []).append(effort)
    for stay in stays:
        begin, end = max(stay.started_at, since), min(stay.ended_at or until, until)
        for first, last in _days(begin, end):
            yield from _split(stay, by_worker.get(stay.worker_id, ()), first, last)


def _split(stay: Stay, efforts: Iterable[Effort], begin: datetime, end: datetime) -> Iterator[Piece]:
    """A worker has one job at a time; should its record say otherwise, no second is paid twice."""
    here = begin
    for effort in efforts:
        first, last = max(effort.started_at, here), min(effort.ended_at or end, end)
        if first < last:
            yield _piece(stay, None, here, first)
            yield _piece(stay, effort.type, first, last)
            here = last
    yield _piece(stay, None, here, end)


def _piece(stay: Stay, kind: str | None, begin: datetime, end: datetime) -> Piece:
    hours = Decimal(str((end - begin) / HOUR))
    return Piece(day=f"{begin:%Y-%m-%d}", pool=stay.pool, type=kind, cost=stay.cost_per_hour * hours)


def _days(begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    while begin < end:
        last = min(midnight(begin) + DAY, end)
        yield begin, last
        begin = last


def midnight(instant: datetime) -> datetime:
    return instant.replace(hour=0, minute=0, second=0, microsecond=0)


MOST_DAYS = 366
SHOWN_HOURS = 24
Part = tuple[datetime, str, str | None]
"""An hour, a pool, and the type of job that ran in it; None while nothing did."""


def parts(
    stays: Iterable[Stay], efforts: Iterable[Effort], since: datetime, until: datetime
) -> Mapping[Part, float]:
    """USD. Each second of each instance is in exactly one of them, however long its list of jobs is."""
    by_worker: defaultdict[str, list[Effort]] = defaultdict(list)
    for effort in sorted(efforts, key=lambda each: each.started_at):
        by_worker[effort.worker_id].append(effort)
    money: defaultdict[Part, float] = defaultdict(float)
    for stay in stays:
        begin, end = max(stay.started_at, since), min(stay.ended_at or until, until)
        price = float(stay.cost_per_hour)
        for kind, first, last in _stretches(by_worker[stay.worker_id], begin, end):
            for hour, share in _hours(first, last):
                money[hour, stay.pool, kind] += price * share
    return money


@dataclass(frozen=True, slots=True)
class Looked:
    """Of so many days, and of at least the last one."""

    since: datetime
    until: datetime
    parts: Mapping[Part, float]
    per_hour: float
    done: int


def cost(services: Services, days: int) -> CostOut:
    return _told(services.database.read(lambda tx: _look(tx, days)), days)


class Costs:
    """Shared by all who ask: a month of a busy fleet takes a while to add up."""

    def __init__(self, services: Services, clock: Clock) -> None:
        self._services = services
        self._clock = clock
        self._lock = Lock()
        self._of_days: dict[int, TtlCache[CostOut]] = {}

    def of(self, days: int) -> CostOut:
        with self._lock:
            found = self._of_days.setdefault(days, TtlCache(self._look(days), self._clock))
        return found.get()

    def _look(self, days: int) -> Callable[[], CostOut]:
        return lambda: cost(self._services, days)


def _look(tx: Tx, days: int) -> Looked:
    now = tx.now()
    since = midnight(now) - (days - 1) * DAY
    earliest = min(since, _hour(now) - (SHOWN_HOURS - 1) * HOUR)
    stays = stats_sql.instance_stays(tx, earliest)
    efforts = stats_sql.instance_efforts(tx, sorted({stay.worker_id for stay in stays}), earliest)
    return Looked(
        since=since,
        until=now,
        parts=parts(stays, efforts, earliest, now),
        per_hour=float(stats_sql.hourly_rate(tx)),
        done=stats_sql.done_since(tx, since),
    )


def _stretches(
    efforts: Sequence[Effort], begin: datetime, end: datetime
) -> Iterator[tuple[str | None, datetime, datetime]]:
    """A worker has one job at a time; should its record say otherwise, no second is paid twice."""
    here = begin
    for effort in efforts:
        first, last = max(effort.started_at, here), min(effort.ended_at or end, end)
        if first < last:
            yield None, here, first
            yield effort.type, first, last
            here = last
    yield None, here, end


def _hours(begin: datetime, end: datetime) -> Iterator[tuple[datetime, float]]:
    """Each hour that it touches, with how much of it."""
    while begin < end:
        hour = _hour(begin)
        last = min(hour + HOUR, end)
        yield hour, (last - begin) / HOUR
        begin = last


def _told(found: Looked, days: int) -> CostOut:
    within = {part: usd for part, usd in found.parts.items() if part[0] >= found.since}
    total, today = sum(within.values()), f"{found.until:%Y-%m-%d}"
    by_day = _lines(within, lambda part: f"{part[0]:%Y-%m-%d}")
    return CostOut(
        since=found.since,
        until=found.until,
        days=days,
        per_hour_usd=found.per_hour,
        today_usd=sum(line.total_usd for line in by_day if line.key == today),
        total_usd=total,
        by_day=by_day,
        by_hour=_by_hour(found),
        by_pool=_lines(within, lambda part: part[1]),
        by_type=_lines(within, lambda part: part[2] or IDLE),
        done_jobs=found.done,
        per_done_job_usd=total / found.done if found.done else None,
    )


def _by_hour(found: Looked) -> tuple[MoneyOut, ...]:
    """The last of them has begun and not ended; one in which nothing ran is there, too."""
    this = _hour(found.until)
    hours = [this - back * HOUR for back in range(SHOWN_HOURS - 1, -1, -1)]
    lines = {line.key: line for line in _lines(found.parts, lambda part: part[0].isoformat())}
    return tuple(lines.get(each.isoformat(), _line(each.isoformat(), 0.0, 0.0)) for each in hours)


def _lines(money: Mapping[Part, float], key: Callable[[Part], str]) -> tuple[MoneyOut, ...]:
    busy: defaultdict[str, float] = defaultdict(float)
    idle: defaultdict[str, float] = defaultdict(float)
    for part, usd in money.items():
        (idle if part[2] is None else busy)[key(part)] += usd
    return tuple(_line(name, busy[name], idle[name]) for name in sorted(busy.keys() | idle.keys()))


def _line(name: str, busy: float, idle: float) -> MoneyOut:
    return MoneyOut(key=name, busy_usd=busy, idle_usd=idle, total_usd=busy + idle)


def _hour(instant: datetime) -> datetime:
    return instant.replace(minute=0, second=0, microsecond=0)
