"""The workers of a pool, moved together with it."""

from sqlalchemy import select

from herdsman.core.model import ClaimKey, JobId, PoolId
from herdsman.core.reasons import Reason
from herdsman.core.states import HELD, WORKER, WorkerState
from herdsman.db.connection import Tx, records
from herdsman.db.schema import jobs, workers
from herdsman.db.statements import one_of
from herdsman.store.workers import move_all


def let_go(tx: Tx, pool: PoolId, reason: Reason, who: str) -> int:
    """Every active worker of the pool takes no new job from here on, finishes what it holds and leaves."""
    return move_all(tx, WorkerState.ACTIVE, WorkerState.TERMINATING, reason, who, pool=pool)


def call_off(tx: Tx, pool: PoolId, reason: Reason, who: str) -> int:
    """Those that have not begun to work are ended; they did not fail."""
    return move_all(tx, WorkerState.SPAWNING, WorkerState.ERROR, reason, who, pool=pool)


def held_jobs(tx: Tx, pool: PoolId) -> list[ClaimKey]:
    """What living workers of the pool hold, whichever pool the jobs are of."""
    query = (
        select(jobs.c.job_id, jobs.c.claim_token)
        .join(workers, workers.c.id == jobs.c.worker_id)
        .where(workers.c.pool == pool, one_of(workers.c.status, WORKER.live), one_of(jobs.c.status, HELD))
        .order_by(jobs.c.job_id)
    )
    return [ClaimKey(JobId(row["job_id"]), row["claim_token"]) for row in records(tx, query)]
