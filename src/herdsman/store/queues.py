"""Queues as a page shows them: how many jobs of which type wait in which pool, and for how long."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, func, select

from herdsman.core.states import JobState
from herdsman.db.connection import Tx
from herdsman.db.schema import jobs
from herdsman.db.statements import Hot

MOST_COUNTED = 5000
"""Jobs that every cycle of the control loop counts by type: no index has the types, so each row is looked at."""
MOST_QUEUES = 50

_WAITING = jobs.c.status == JobState.PENDING.value
_FIRST = select(jobs.c.type).where(_WAITING).limit(MOST_COUNTED + 1).subquery()
BY_TYPE = Hot(select(_FIRST.c.type, func.count()).group_by(_FIRST.c.type))
_NUMBER = func.count()
QUEUES = Hot(
    select(jobs.c.type, jobs.c.pool, _NUMBER, func.min(jobs.c.run_at))
    .where(_WAITING)
    .group_by(jobs.c.type, jobs.c.pool)
    .order_by(_NUMBER.desc(), jobs.c.type, jobs.c.pool)
    .limit(bindparam("b_limit"))
)
OLDEST = Hot(select(jobs.c.job_id, jobs.c.run_at).where(_WAITING).order_by(jobs.c.run_at).limit(1))


@dataclass(frozen=True, slots=True)
class Queue:
    type: str
    pool: str
    count: int
    oldest: datetime
    """When the one became due that waits longest."""


def by_type(tx: Tx) -> Mapping[str, int] | None:
    """None when more wait than are counted each time."""
    found = {kind: int(count) for kind, count in tx.rows(BY_TYPE, {})}
    return found if sum(found.values()) <= MOST_COUNTED else None


def queues(tx: Tx) -> list[Queue]:
    """The longest first. It looks at every job that waits, so it is not to be asked for often."""
    return [Queue(*row) for row in tx.rows(QUEUES, {"b_limit": MOST_QUEUES})]


def oldest(tx: Tx) -> tuple[str, datetime] | None:
    found = tx.rows(OLDEST, {})
    return None if not found else (found[0][0], found[0][1])
