"""The workers of a pool, moved together with it. Their rows are locked in the order of their ids."""

from collections.abc import Sequence

from sqlalchemy import select, update

from herdsman.core.model import ClaimKey, JobId, PoolId, WorkerId
from herdsman.core.reasons import Reason
from herdsman.core.states import HELD, WORKER, WorkerState
from herdsman.store.database import Tx
from herdsman.store.hot import one_of
from herdsman.store.reading import records, values
from herdsman.store.schema import jobs, workers

_BATCH = 500


def let_go(tx: Tx, pool: PoolId, reason: Reason, who: str) -> int:
    """Every active worker of the pool takes no new job from here on, finishes what it holds and leaves."""
    found = _lock(tx, pool, WorkerState.ACTIVE)
    _move(tx, found, WorkerState.ACTIVE, WorkerState.TERMINATING, reason, who)
    return len(found)


def call_off(tx: Tx, pool: PoolId, reason: Reason, who: str) -> int:
    """Those that have not begun to work are ended; they did not fail."""
    found = _lock(tx, pool, WorkerState.SPAWNING)
    _move(tx, found, WorkerState.SPAWNING, WorkerState.ERROR, reason, who)
    return len(found)


def held_jobs(tx: Tx, pool: PoolId) -> list[ClaimKey]:
    """What living workers of the pool hold, whichever pool the jobs are of."""
    query = (
        select(jobs.c.job_id, jobs.c.claim_token)
        .join(workers, workers.c.id == jobs.c.worker_id)
        .where(workers.c.pool == pool, one_of(workers.c.status, WORKER.live), one_of(jobs.c.status, HELD))
        .order_by(jobs.c.job_id)
    )
    return [ClaimKey(JobId(row["job_id"]), row["claim_token"]) for row in records(tx, query)]


def _lock(tx: Tx, pool: PoolId, state: WorkerState) -> list[WorkerId]:
    query = select(workers.c.id).where(workers.c.pool == pool, workers.c.status == state.value)
    return [WorkerId(each) for each in values(tx, query.order_by(workers.c.id).with_for_update())]


def _move(
    tx: Tx, ids: Sequence[WorkerId], here: WorkerState, to: WorkerState, reason: Reason, who: str
) -> None:
    assert WORKER.allows(here, to)
    for start in range(0, len(ids), _BATCH):
        some = ids[start : start + _BATCH]
        tx.execute(
            update(workers)
            .where(workers.c.id.in_(some), workers.c.status == here.value)
            .values(
                status=to.value,
                reason=reason.value,
                actor=who,
                version=workers.c.version + 1,
                updated_at=tx.now(),
                entered_state_at=tx.now(),
            )
        )
