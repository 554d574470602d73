"""What the streams ask the database: which jobs wait, what became of those that were announced, what was made up."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, func, insert, select

from herdsman.db.connection import Tx
from herdsman.db.schema import SERVICE, audit_entries, job_ends, jobs, pools
from herdsman.db.statements import PreparedStatement, in_state
from herdsman.ids import JobId, PoolId
from herdsman.json_text import clean
from herdsman.redis.streams import Hint, Known
from herdsman.states import JobStatus
from herdsman.wire import span

MOST_POOLS = 200
KIND = "stream"
_ERROR = select(job_ends.c.last_error).where(
    job_ends.c.job_id == jobs.c.job_id, job_ends.c.claim_token == jobs.c.claim_token
)
_SEEN = (
    *(jobs.c.job_id, jobs.c.status, jobs.c.version, jobs.c.pool, jobs.c.attempts, _ERROR.scalar_subquery()),
    *(jobs.c[name] for name in SERVICE),
)
LOOK_UP = PreparedStatement(lambda listed: select(*_SEEN).where(jobs.c.job_id.in_(listed)))
WAITING = PreparedStatement(
    select(jobs.c.job_id, jobs.c.type, jobs.c.version, jobs.c.timeout_s)
    .where(in_state(jobs.c.status, JobStatus.PENDING), jobs.c.pool == bindparam("b_pool"))
    .order_by(jobs.c.place)
    .limit(bindparam("b_limit"))
)
NEXT_POOL = PreparedStatement(
    select(func.min(jobs.c.pool)).where(in_state(jobs.c.status, JobStatus.PENDING), jobs.c.pool > bindparam("b_pool"))
)
ISOLATED = PreparedStatement(
    select(pools.c.pool_id).where(pools.c.isolated != 0).order_by(pools.c.pool_id).limit(MOST_POOLS)
)
RECENT_DEAD = PreparedStatement(
    select(*_SEEN)
    .where(in_state(jobs.c.status, JobStatus.DEAD_LETTER), jobs.c.finished_at >= bindparam("b_since"))
    .order_by(jobs.c.finished_at.desc())
    .limit(bindparam("b_limit"))
)


def look_up(tx: Tx, job_ids: Sequence[str]) -> Mapping[str, Known]:
    """Those that exist, in one query."""
    return {row[0]: _known(row) for row in tx.rows(LOOK_UP, {}, job_ids)} if job_ids else {}


def waiting(tx: Tx, pool: PoolId, limit: int) -> list[Hint]:
    """The first of the jobs that wait in this pool, in the order in which they will be claimed."""
    return [
        Hint(job_id=JobId(job_id), type=kind, pool=pool, version=version, timeout=span(timeout))
        for job_id, kind, version, timeout in tx.rows(WAITING, {"b_pool": pool, "b_limit": limit})
    ]


def waiting_pools(tx: Tx) -> list[PoolId]:
    """Pools in which jobs wait. From name to name by the index: the jobs of a long queue are not counted."""
    found: list[PoolId] = []
    while len(found) < MOST_POOLS:
        pool = tx.rows(NEXT_POOL, {"b_pool": found[-1] if found else ""})[0][0]
        if pool is None:
            break
        found.append(PoolId(pool))
    return found


def isolated_pools(tx: Tx) -> list[PoolId]:
    return [PoolId(row[0]) for row in tx.rows(ISOLATED, {})]


def recent_dead(tx: Tx, within: timedelta, limit: int) -> list[Known]:
    """Jobs that ended as dead letters not long ago, the latest first."""
    found = tx.rows(RECENT_DEAD, {"b_since": tx.now() - within, "b_limit": limit})
    return [_known(row) for row in found]


def record_quarantined(tx: Tx, stream: str, entry_id: str, job_id: str, reason: str) -> None:
    """One row for each entry; `Duplicate` when it is there already."""
    details: dict[str, object] = {
        "stream": clean(stream, 255),
        "entry": entry_id,
        "job_id": clean(job_id, 255),
        "reason": clean(reason, 1000),
    }
    row: dict[str, Any] = {
        "ts": tx.now(),
        "kind": KIND,
        "object_id": clean(f"{stream}:{entry_id}"[-128:], 128),
        "seq": 1,
        "status": "quarantined",
        "reason": "quarantined",
        "actor": "streams",
        "details": details,
    }
    tx.execute(insert(audit_entries).values(row))


def _known(row: Sequence[Any]) -> Known:
    job_id, status, version, pool, attempts, last_error, *service = row
    return Known(
        job_id=JobId(job_id),
        status=JobStatus(status),
        version=version,
        pool=PoolId(pool),
        attempts=attempts,
        last_error=last_error,
        service={
            name: (value.isoformat() if isinstance(value, datetime) else str(value))
            for name, value in zip(SERVICE, service, strict=True)
            if value is not None
        },
    )
