"""What the fleet cost: each instance's time and price, split into what was work and what was waiting."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
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
MOST_DAYS = 366
SHOWN_HOURS = 24
Part = tuple[datetime, str, str | None]
"""An hour, a pool, and the type of job that ran in it; None while nothing did."""
Key = Callable[[Part], str]
BY: Mapping[str, Key] = {
    "day": lambda part: f"{part[0]:%Y-%m-%d}",
    "hour": lambda part: part[0].isoformat(),
    "pool": lambda part: part[1],
    "type": lambda part: part[2] or IDLE,
}


class Costs:
    """Shared by all who ask: a month of a busy fleet takes a while to add up."""

    def __init__(self, services: Services, clock: Clock) -> None:
        self._services = services
        self._clock = clock
        self._lock = Lock()
        self._of_days: dict[int, TtlCache[CostOut]] = {}

    def of(self, days: int) -> CostOut:
        with self._lock:
            shared = self._of_days.get(days)
            if shared is None:
                shared = self._of_days[days] = TtlCache(lambda: cost(self._services, days), self._clock)
        return shared.get()


def cost(services: Services, days: int) -> CostOut:
    """Of so many days, in UTC, today's included."""
    return services.database.read(lambda tx: _cost(tx, days))


def _cost(tx: Tx, days: int) -> CostOut:
    now, this_hour = tx.now(), _hour(tx.now())
    since = now.replace(hour=0, minute=0, second=0, microsecond=0) - (days - 1) * DAY
    hours = [this_hour - back * HOUR for back in range(SHOWN_HOURS - 1, -1, -1)]
    earliest = min(since, hours[0])
    stays = stats_sql.instance_stays(tx, earliest)
    efforts = stats_sql.instance_efforts(tx, sorted({stay.worker_id for stay in stays}), earliest)
    money = parts(stays, efforts, earliest, now)
    within = {part: usd for part, usd in money.items() if part[0] >= since}
    total, done = sum(within.values()), stats_sql.done_since(tx, since)
    by_day = grouped(within, BY["day"])
    by_hour = {line.key: line for line in grouped(money, BY["hour"])}
    return CostOut(
        since=since,
        until=now,
        days=days,
        per_hour_usd=float(stats_sql.hourly_rate(tx)),
        today_usd=sum(line.total_usd for line in by_day if line.key == f"{now:%Y-%m-%d}"),
        total_usd=total,
        by_day=by_day,
        # The last of them has begun and not ended; one in which nothing ran is there, too.
        by_hour=tuple(by_hour.get(hour.isoformat(), _line(hour.isoformat(), 0.0, 0.0)) for hour in hours),
        by_pool=grouped(within, BY["pool"]),
        by_type=grouped(within, BY["type"]),
        done_jobs=done,
        per_done_job_usd=total / done if done else None,
    )


def parts(stays: Iterable[Stay], efforts: Iterable[Effort], since: datetime, until: datetime) -> Mapping[Part, float]:
    """USD. Each second of each instance is in exactly one of them, however long its list of jobs is."""
    by_worker: defaultdict[str, list[Effort]] = defaultdict(list)
    for effort in sorted(efforts, key=lambda each: each.started_at):
        by_worker[effort.worker_id].append(effort)
    money: defaultdict[Part, float] = defaultdict(float)
    for stay in stays:
        begin, end = max(stay.started_at, since), min(stay.ended_at or until, until)
        price = float(stay.cost_per_hour)
        for kind, first, last in _stretches(by_worker[stay.worker_id], begin, end):
            while first < last:
                hour = _hour(first)
                here = min(hour + HOUR, last)
                money[hour, stay.pool, kind] += price * ((here - first) / HOUR)
                first = here  # noqa: PLW2901
    return money


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


def grouped(money: Mapping[Part, float], key: Key) -> tuple[MoneyOut, ...]:
    """The sum of the lines is the sum of the parts, whichever way they are grouped."""
    busy: defaultdict[str, float] = defaultdict(float)
    idle: defaultdict[str, float] = defaultdict(float)
    for part, usd in money.items():
        (idle if part[2] is None else busy)[key(part)] += usd
    return tuple(_line(name, busy[name], idle[name]) for name in sorted(busy.keys() | idle.keys()))


def _line(name: str, busy: float, idle: float) -> MoneyOut:
    return MoneyOut(key=name, busy_usd=busy, idle_usd=idle, total_usd=busy + idle)


def _hour(instant: datetime) -> datetime:
    return instant.replace(minute=0, second=0, microsecond=0)
