"""How long jobs took from their submission to their end, added up by the database over a short time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Float, case, func, literal_column, select

from herdsman.core.states import JobState
from herdsman.db.connection import Tx
from herdsman.db.dialects import PHRASES
from herdsman.db.schema import jobs

BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
MOST_TYPES = 200


@dataclass(frozen=True, slots=True)
class Took:
    """All jobs of one type that were done within a time."""

    type: str
    count: int
    seconds: float
    within: tuple[int, ...]
    """How many took no longer than each of the `BOUNDS`."""


def took(tx: Tx, since: datetime, until: datetime) -> Sequence[Took]:
    """Of jobs that were done after `since` and not after `until`, the busiest types first."""
    span = literal_column(PHRASES[tx.dialect].seconds("created_at", "finished_at"), Float()).label("span")
    ended = (
        select(jobs.c.type, span)
        .where(jobs.c.finished_at > since, jobs.c.finished_at <= until)
        .where(jobs.c.status == JobState.DONE.value)
        .subquery()
    )
    columns = [func.sum(case((ended.c.span <= bound, 1), else_=0)) for bound in BOUNDS]
    counted = func.count()
    query = select(ended.c.type, counted, func.sum(ended.c.span), *columns)
    rows = tx.execute(query.group_by(ended.c.type).order_by(counted.desc()).limit(MOST_TYPES))
    return [_to_took(tuple(row)) for row in rows]


def _to_took(row: tuple[Any, ...]) -> Took:
    kind, count, seconds, *within = row
    return Took(kind, int(count), max(0.0, float(seconds)), tuple(int(each) for each in within))
