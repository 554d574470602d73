"""Pools as people see them: with their workers and what waits for them."""

from collections import Counter
from collections.abc import Mapping, Sequence

from sqlalchemy import func, select

from herdsman.core.pools import Pool, PoolStanding
from herdsman.core.states import WORKER, JobState, WorkerState
from herdsman.db.connection import Record, Tx, records, values
from herdsman.db.schema import jobs, workers
from herdsman.db.statements import one_of

MOST_TROUBLES = 10


def standings(tx: Tx, pools: Sequence[Pool]) -> list[PoolStanding]:
    ids = [pool.pool_id for pool in pools]
    if not ids:
        return []
    columns = (workers.c.pool, workers.c.status, workers.c.revision)
    living = select(*columns, func.count().label("count")).where(
        workers.c.pool.in_(ids), one_of(workers.c.status, WORKER.live)
    )
    waiting = select(jobs.c.pool, func.count().label("count")).where(
        jobs.c.status == JobState.PENDING.value, jobs.c.pool.in_(ids)
    )
    found = records(tx, living.group_by(*columns))
    queued = {row["pool"]: int(row["count"]) for row in records(tx, waiting.group_by(jobs.c.pool))}
    return [_standing(tx, pool, found, queued) for pool in pools]


def _standing(tx: Tx, pool: Pool, found: Sequence[Record], queued: Mapping[str, int]) -> PoolStanding:
    mine = [row for row in found if row["pool"] == pool.pool_id]
    there: Counter[WorkerState] = Counter()
    for row in mine:
        there[WorkerState(row["status"])] += int(row["count"])
    served = [row for row in mine if row["status"] == WorkerState.ACTIVE and row["revision"] >= pool.revision]
    at_revision = sum(int(row["count"]) for row in served)
    behind = at_revision < there[WorkerState.ACTIVE]
    return PoolStanding(
        pool=pool,
        workers=dict(there),
        at_revision=at_revision,
        queued=queued.get(pool.pool_id, 0),
        troubles=_troubles(tx, pool) if behind else (),
    )


def _troubles(tx: Tx, pool: Pool) -> tuple[str, ...]:
    query = select(workers.c.metadata).where(
        workers.c.pool == pool.pool_id,
        workers.c.status == WorkerState.ACTIVE.value,
        workers.c.revision < workers.c.wanted_revision,
    )
    said = [
        each.get("load_trouble") for each in values(tx, query.order_by(workers.c.id).limit(MOST_TROUBLES))
    ]
    return tuple(dict.fromkeys(str(each) for each in said if each))
