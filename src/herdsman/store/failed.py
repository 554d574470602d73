"""Jobs that failed, as a page groups them: the newest, with only the ends of what their errors say."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, case, func, select

from herdsman.core.states import JobState
from herdsman.db.connection import Tx, records
from herdsman.db.schema import jobs

MOST_SCANNED = 2500
"""Of each state."""
FAILING = (JobState.FAILED, JobState.DEAD_LETTER)
_HEAD, _TAIL = 200, 600


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    job_id: str
    type: str
    state: JobState
    failure_class: str | None
    head: str
    tail: str
    """The beginning and the end of its error."""
    at: datetime


def newest(tx: Tx, since: datetime) -> tuple[list[FailedJob], bool]:
    """The latest first, and whether there may be more. Each state is a piece of one index, and no more is read."""
    found: list[FailedJob] = []
    full = False
    for state in FAILING:
        rows = records(tx, _query(state))
        full = full or len(rows) == MOST_SCANNED
        found += _since(rows, state, since)
    return sorted(found, key=lambda each: each.at, reverse=True), full


def _query(state: JobState) -> Any:
    return (
        select(
            jobs.c.job_id,
            jobs.c.type,
            jobs.c.failure_class,
            jobs.c.updated_at,
            jobs.c.finished_at,
            func.substr(jobs.c.last_error, 1, _HEAD).label("head"),
            _end(jobs.c.last_error).label("tail"),
        )
        .where(jobs.c.status == state.value)
        .order_by(jobs.c.created_at.desc(), jobs.c.job_id.desc())
        .limit(MOST_SCANNED)
    )


def _end(text: ColumnElement[Any]) -> ColumnElement[Any]:
    """An error may be as long as a page is short; a negative beginning means something else to each database."""
    length = func.char_length(text)
    return case((length > _TAIL, func.substr(text, length - (_TAIL - 1))), else_=text)


def _since(rows: list[dict[str, Any]], state: JobState, since: datetime) -> Iterator[FailedJob]:
    for row in rows:
        at = row["finished_at"] or row["updated_at"]
        if at > since:
            yield FailedJob(
                job_id=row["job_id"],
                type=row["type"],
                state=state,
                failure_class=row["failure_class"],
                head=row["head"] or "",
                tail=row["tail"] or "",
                at=at,
            )
