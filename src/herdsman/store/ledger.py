"""What instances cost: each one's time and price."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import bindparam, or_, select

from herdsman.db.connection import Record, Tx, records
from herdsman.db.schema import instances, job_attempts, jobs
from herdsman.db.statements import Hot, Row

HOUR = timedelta(hours=1)
MOST_LISTED = 500


PRICES = Hot(
    select(instances.c.cost_per_hour, instances.c.started_at, instances.c.ended_at).where(
        instances.c.started_at.is_not(None),
        or_(instances.c.ended_at.is_(None), instances.c.ended_at > bindparam("b_since")),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One instance's time with us."""

    name: str
    worker_id: str
    pool: str
    cost_per_hour: Decimal
    started_at: datetime
    ended_at: datetime | None

    def cost(self, since: datetime, until: datetime) -> Decimal:
        """Of the part that lies between."""
        begin, end = max(self.started_at, since), min(self.ended_at or until, until)
        return self.cost_per_hour * Decimal(max(0.0, (end - begin) / HOUR)).quantize(Decimal("1e-9"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """One attempt at a job: the time that its worker was busy with it."""

    worker_id: str
    type: str
    started_at: datetime
    ended_at: datetime | None


def stays(tx: Tx, since: datetime) -> list[Stay]:
    query = select(instances).where(
        instances.c.started_at.is_not(None), or_(instances.c.ended_at.is_(None), instances.c.ended_at > since)
    )
    return [_to_stay(row) for row in records(tx, query)]


def efforts(tx: Tx, workers: Sequence[str], since: datetime) -> list[Effort]:
    """What these workers were busy with since then."""
    columns = (
        job_attempts.c.worker_id,
        jobs.c.type,
        job_attempts.c.claimed_at.label("started_at"),
        job_attempts.c.ended_at,
    )
    query = select(*columns).join(jobs, jobs.c.job_id == job_attempts.c.job_id)
    recent = or_(job_attempts.c.ended_at.is_(None), job_attempts.c.ended_at > since)
    found: list[Effort] = []
    for start in range(0, len(workers), MOST_LISTED):
        listed = job_attempts.c.worker_id.in_(workers[start : start + MOST_LISTED])
        rows = (tuple(row) for row in tx.execute(query.where(listed, recent)))
        found += [_to_effort(row) for row in rows]
    return found


def spent(tx: Tx) -> Mapping[str, Decimal]:
    """Money of the current hour and day, by the database's clock."""
    now = tx.now()
    starts = {
        "hour": now.replace(minute=0, second=0, microsecond=0),
        "day": now.replace(hour=0, minute=0, second=0, microsecond=0),
    }
    found = tx.rows(PRICES, {"b_since": starts["day"]})
    return {span: _cost(found, start, now) for span, start in starts.items()}


def _cost(prices: Sequence[Row], since: datetime, until: datetime) -> Decimal:
    """In floating point, unlike a bill: every cycle asks, of every instance of the day."""
    hours = ((cost, (min(ended or until, until) - max(began, since)) / HOUR) for cost, began, ended in prices)
    return Decimal(sum(cost * span for cost, span in hours if span > 0)).quantize(Decimal("1e-6"))


def rate(tx: Tx) -> Decimal:
    """What an hour of the fleet of this moment costs."""
    return sum((stay.cost_per_hour for stay in stays(tx, tx.now()) if stay.ended_at is None), Decimal(0))


def _to_effort(row: Row) -> Effort:
    """From a plain row: a month of a busy fleet has many of them, and a dictionary for each takes its time."""
    worker_id, kind, started_at, ended_at = row
    return Effort(worker_id=worker_id, type=kind, started_at=started_at, ended_at=ended_at)


def _to_stay(row: Record) -> Stay:
    return Stay(
        name=row["name"],
        worker_id=row["worker_id"],
        pool=row["pool"],
        cost_per_hour=Decimal(str(row["cost_per_hour"])),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
    )
