"""What instances cost: each one's time and price."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import or_, select

from herdsman.store.database import Tx
from herdsman.store.reading import Record, records
from herdsman.store.schema import instances

HOUR = timedelta(hours=1)


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


def stays(tx: Tx, since: datetime) -> list[Stay]:
    query = select(instances).where(
        instances.c.started_at.is_not(None), or_(instances.c.ended_at.is_(None), instances.c.ended_at > since)
    )
    return [_to_stay(row) for row in records(tx, query)]


def spent(tx: Tx) -> Mapping[str, Decimal]:
    """Money of the current hour and day, by the database's clock."""
    now = tx.now()
    starts = {
        "hour": now.replace(minute=0, second=0, microsecond=0),
        "day": now.replace(hour=0, minute=0, second=0, microsecond=0),
    }
    found = stays(tx, starts["day"])
    return {
        span: sum((stay.cost(start, now) for stay in found), Decimal(0)) for span, start in starts.items()
    }


def rate(tx: Tx) -> Decimal:
    """What an hour of the fleet of this moment costs."""
    return sum((stay.cost_per_hour for stay in stays(tx, tx.now()) if stay.ended_at is None), Decimal(0))


def _to_stay(row: Record) -> Stay:
    return Stay(
        name=row["name"],
        worker_id=row["worker_id"],
        pool=row["pool"],
        cost_per_hour=Decimal(str(row["cost_per_hour"])),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
    )
