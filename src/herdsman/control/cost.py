"""What the fleet cost: each instance's time and price, split into what was work and what was waiting."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from herdsman.control.services import Services
from herdsman.db.connection import Tx
from herdsman.store import ledger
from herdsman.store.ledger import Effort, Stay

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
    stays = ledger.stays(tx, since)
    efforts = ledger.efforts(tx, sorted({stay.worker_id for stay in stays}), since)
    return Bill(
        since=since, until=until, per_hour=ledger.rate(tx), lines=lines(by, stays, efforts, since, until)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Part of a stay, on one day and with one job or none."""

    day: str
    pool: str
    type: str | None
    cost: Decimal


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
