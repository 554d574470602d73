"""How long jobs and the starts of workers took lately: what a guess about the next ones rests on."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, func, select

from herdsman.core.states import JobState
from herdsman.db.connection import Tx
from herdsman.db.schema import jobs, workers
from herdsman.db.statements import Hot, Row

MOST_READ = 5000
"""Ends of jobs that are looked through for those of one type: no index has the types."""
SAMPLE = 500
BOOTS = 200

_ENDED = (
    select(jobs.c.type, jobs.c.status, jobs.c.started_at, jobs.c.finished_at)
    .where(jobs.c.finished_at.is_not(None))
    .order_by(jobs.c.finished_at.desc())
    .limit(MOST_READ)
    .subquery()
)
_DONE = (
    select(_ENDED.c.started_at, _ENDED.c.finished_at)
    .where(_ENDED.c.status == JobState.DONE.value, _ENDED.c.started_at.is_not(None))
    .order_by(_ENDED.c.finished_at.desc())
    .limit(SAMPLE)
)
OF_ALL = Hot(_DONE)
OF_TYPE = Hot(_DONE.where(_ENDED.c.type == bindparam("b_type")))
STARTED = Hot(
    select(workers.c.pool, workers.c.created_at, workers.c.promoted_at)
    .order_by(workers.c.created_at.desc())
    .limit(BOOTS)
)
DONE_SINCE = Hot(
    select(func.count())
    .select_from(jobs)
    .where(jobs.c.finished_at > bindparam("b_since"), jobs.c.status == JobState.DONE.value)
)


@dataclass(frozen=True, slots=True)
class Pace:
    seconds: tuple[float, ...]
    own: bool
    """Of the very type or pool that was asked for; else of all of them."""


def took(tx: Tx, kind: str) -> Pace:
    """How long the latest jobs of this type ran that were done, or where there are none, those of all types."""
    own = _seconds(tx.rows(OF_TYPE, {"b_type": kind}))
    return Pace(own, own=True) if own else Pace(_seconds(tx.rows(OF_ALL, {})), own=False)


def boots(tx: Tx, pool: str) -> Pace:
    """How long the latest workers took from their row to their work."""
    found = [row for row in tx.rows(STARTED, {}) if row[2] is not None]
    mine = _seconds([row[1:] for row in found if row[0] == pool])
    return Pace(mine, own=True) if mine else Pace(_seconds([row[1:] for row in found]), own=False)


def done_since(tx: Tx, since: datetime) -> int:
    return int(tx.rows(DONE_SINCE, {"b_since": since})[0][0])


def _seconds(rows: Sequence[Row]) -> tuple[float, ...]:
    return tuple(max(0.0, (end - begin).total_seconds()) for begin, end in rows)
