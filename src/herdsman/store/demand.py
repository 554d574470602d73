"""What a forecast rests on, and what a replay replays: when jobs came, how long they took, how long starts took."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from sqlalchemy import and_, bindparam, func, or_, select

from herdsman.core.model import PoolId
from herdsman.core.scaling.demand import AHEAD, RECENT, SLOT, Demand
from herdsman.core.states import JobState
from herdsman.db.connection import Tx
from herdsman.db.schema import job_attempts, jobs, workers
from herdsman.db.statements import Hot, Row
from herdsman.store import pace

SAMPLE = 200
PAGE = 5000
DAY = timedelta(days=1)

# A piece of the index by creation; what came for other pools is read in vain.
CAME = Hot(
    select(func.count())
    .select_from(jobs)
    .where(
        jobs.c.created_at > bindparam("b_after"),
        jobs.c.created_at <= bindparam("b_until"),
        jobs.c.pool == bindparam("b_pool"),
    )
)
_ENDED = (
    select(
        job_attempts.c.job_id,
        job_attempts.c.attempt,
        job_attempts.c.pool,
        job_attempts.c.outcome,
        job_attempts.c.claimed_at,
        job_attempts.c.ended_at,
    )
    .where(job_attempts.c.ended_at.is_not(None))
    .order_by(job_attempts.c.ended_at.desc())
    .limit(PAGE)
    .subquery()
)
# Looked through in the order of their ends, for no index has the pools.
TOOK = Hot(
    select(_ENDED.c.claimed_at, _ENDED.c.ended_at)
    .where(_ENDED.c.pool == bindparam("b_pool"), _ENDED.c.outcome == JobState.DONE.value)
    .order_by(_ENDED.c.ended_at.desc())
    .limit(SAMPLE)
)
# A job that was tried again waited before its first attempt only; its due time may have been moved since.
WAITED = Hot(
    select(_ENDED.c.claimed_at, jobs.c.created_at, jobs.c.run_at)
    .select_from(_ENDED.join(jobs, jobs.c.job_id == _ENDED.c.job_id))
    .where(_ENDED.c.pool == bindparam("b_pool"), _ENDED.c.attempt == 1)
    .order_by(_ENDED.c.ended_at.desc())
    .limit(SAMPLE)
)
STARTS = Hot(
    select(workers.c.promoted_at, workers.c.failed_at)
    .where(workers.c.pool == bindparam("b_pool"))
    .order_by(workers.c.created_at.desc())
    .limit(SAMPLE)
)


def observed(tx: Tx, pool: PoolId) -> Demand:
    now = tx.now()
    then, span = now - DAY, AHEAD * SLOT
    edges = [now - SLOT * each for each in range(RECENT, 0, -1)]
    before = _came(tx, pool, then - span, then)
    after = _came(tx, pool, then, then + span)
    return Demand(
        arrivals=tuple(_came(tx, pool, each, each + SLOT) for each in edges),
        day_before=(before, after) if before or after else None,
        service_s=_seconds(tx.rows(TOOK, {"b_pool": pool})),
        boots_s=pace.boots(tx, pool).seconds,
        waits_s=_seconds([(_due(row), row[0]) for row in tx.rows(WAITED, {"b_pool": pool})]),
        failing=failing_starts(tx, pool),
    )


def failing_starts(tx: Tx, pool: PoolId) -> float:
    """The share of the latest starts that ended badly; those that have not ended say nothing."""
    found = tx.rows(STARTS, {"b_pool": pool})
    failed = sum(1 for promoted, wrong in found if promoted is None and wrong is not None)
    ended = failed + sum(1 for promoted, _ in found if promoted is not None)
    return failed / ended if ended else 0.0


def ended_attempts(tx: Tx, pool: PoolId, since: datetime, most: int) -> Iterator[tuple[datetime, float, str]]:
    """When each came, how many seconds it held a worker and of what type it is, by its end.

    A job that was tried again comes again.
    """
    last: tuple[datetime, str] | None = None
    left = most
    while left > 0:
        page = _attempts(tx, pool, since, last, min(PAGE, left))
        for ended, _, attempt, claimed, created, kind in page:
            yield created if attempt == 1 else claimed, max(0.0, (ended - claimed).total_seconds()), kind
        if len(page) < min(PAGE, left):
            return
        left -= len(page)
        last = (page[-1][0], page[-1][1])


def _attempts(
    tx: Tx, pool: PoolId, since: datetime, last: tuple[datetime, str] | None, limit: int
) -> Sequence[Row]:
    ended, job_id = job_attempts.c.ended_at, job_attempts.c.job_id
    query = (
        select(
            ended, job_id, job_attempts.c.attempt, job_attempts.c.claimed_at, jobs.c.created_at, jobs.c.type
        )
        .join(jobs, jobs.c.job_id == job_id)
        .where(job_attempts.c.pool == pool, ended > since)
        .order_by(ended, job_id)
        .limit(limit)
    )
    if last is not None:
        query = query.where(or_(ended > last[0], and_(ended == last[0], job_id > last[1])))
    return [tuple(row) for row in tx.execute(query)]


def _came(tx: Tx, pool: PoolId, after: datetime, until: datetime) -> int:
    return int(tx.rows(CAME, {"b_after": after, "b_until": until, "b_pool": pool})[0][0])


def _due(row: Row) -> datetime:
    claimed, created, run_at = row
    return run_at if run_at <= claimed else created


def _seconds(rows: Sequence[Row]) -> tuple[float, ...]:
    return tuple(max(0.0, (end - begin).total_seconds()) for begin, end in rows)
