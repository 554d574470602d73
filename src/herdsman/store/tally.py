"""How many there are of what metrics and people ask for; each is a count over a piece of an index."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import bindparam, exists, func, select

from herdsman.core.leasing import LeasePolicy
from herdsman.core.states import HELD, WORKER, JobState, LeaseState, PoolState, WorkerState
from herdsman.db.connection import Tx
from herdsman.db.schema import gpus, jobs, leases, pools, workers
from herdsman.db.statements import Hot, one_of

HOUR = timedelta(hours=1)
OVERDUE = timedelta(seconds=60)
"""So long after its end a claim should have been taken back, whatever went wrong."""
MOST_GPUS = 1000

JOBS_HELD = Hot(select(func.count()).select_from(jobs).where(one_of(jobs.c.status, HELD)))
CLAIMS_OVERDUE = Hot(
    select(func.count())
    .select_from(jobs)
    .where(one_of(jobs.c.status, HELD), jobs.c.claim_expires_at < bindparam("b_before"))
)
# Reads only the index of the jobs that were recovered.
RECOVERED = Hot(
    select(func.count(), func.coalesce(func.sum(jobs.c.saved_gpu_s), 0.0)).where(
        jobs.c.saved_gpu_s.is_not(None)
    )
)
LIVING = Hot(
    select(workers.c.status, func.count())
    .where(one_of(workers.c.status, WORKER.live))
    .group_by(workers.c.status)
)
LIVING_BY_POOL = Hot(
    select(workers.c.pool, func.count()).where(one_of(workers.c.status, WORKER.live)).group_by(workers.c.pool)
)
DEPTHS = Hot(
    select(jobs.c.pool, func.count()).where(jobs.c.status == JobState.PENDING.value).group_by(jobs.c.pool)
)
_OPEN = (PoolState.STARTING, PoolState.RUNNING, PoolState.DRAINING)
POOLS = Hot(select(pools.c.pool_id).where(one_of(pools.c.status, _OPEN)).order_by(pools.c.pool_id))
_LIVE = (leases.c.status == LeaseState.ACTIVE.value, leases.c.expires_at > bindparam("b_now"))
LEASES = Hot(select(func.count()).select_from(leases).where(*_LIVE))
EXPIRED = Hot(
    select(func.count())
    .select_from(leases)
    .where(leases.c.status == LeaseState.EXPIRED.value, leases.c.expires_at > bindparam("b_since"))
)
_LEASED = exists(select(leases.c.token).where(leases.c.gpu_uuid == gpus.c.uuid, *_LIVE))
FREE = Hot(
    select(func.count())
    .select_from(gpus)
    .where(
        gpus.c.quarantined_at.is_(None),
        gpus.c.measured_at > bindparam("b_since"),
        gpus.c.outside_mb <= bindparam("b_tolerance"),
        ~_LEASED,
    )
)
QUARANTINED = Hot(select(func.count()).select_from(gpus).where(gpus.c.quarantined_at.is_not(None)))
GPU_MEMORY = Hot(
    select(gpus.c.node_id, gpus.c.gpu_index, gpus.c.used_mb, gpus.c.total_mb, gpus.c.utilisation)
    .where(gpus.c.measured_at > bindparam("b_since"))
    .order_by(gpus.c.node_id, gpus.c.gpu_index)
    .limit(MOST_GPUS)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    leases: int
    expired: int
    """Leases that ran out within the last hour."""
    free: int
    """GPUs that could be leased as a whole now."""
    quarantined: int
    used_pct: Mapping[tuple[str, int], float]
    """By node and index, of those that were measured lately."""
    busy_pct: Mapping[tuple[str, int], float]


def jobs_held(tx: Tx) -> int:
    return _one(tx, JOBS_HELD)


def claims_overdue(tx: Tx) -> int:
    """Jobs that should have been taken back from their workers long ago."""
    return _one(tx, CLAIMS_OVERDUE, b_before=tx.now() - OVERDUE)


def recovered(tx: Tx) -> tuple[int, float]:
    """Jobs whose results were found at their service, and the GPU seconds that this spared, of those that are kept."""
    ((count, seconds),) = tx.rows(RECOVERED, {})
    return int(count), float(seconds)


def living_workers(tx: Tx) -> Mapping[WorkerState, int]:
    return {WorkerState(state): int(count) for state, count in tx.rows(LIVING, {})}


def workers_by_pool(tx: Tx) -> Mapping[str, int]:
    return {pool: int(count) for pool, count in tx.rows(LIVING_BY_POOL, {})}


def open_pools(tx: Tx) -> list[str]:
    """Those that somebody made, and that have not ended."""
    return [row[0] for row in tx.rows(POOLS, {})]


def depths(tx: Tx) -> Mapping[str, int]:
    """Jobs that wait to be claimed, by their pool."""
    return {pool: int(count) for pool, count in tx.rows(DEPTHS, {})}


def see_gpus(tx: Tx, policy: LeasePolicy) -> Gpus:
    now, fresh = tx.now(), tx.now() - policy.silent_after
    memory = tx.rows(GPU_MEMORY, {"b_since": fresh})
    return Gpus(
        leases=_one(tx, LEASES, b_now=now),
        expired=_one(tx, EXPIRED, b_since=now - HOUR),
        free=_one(tx, FREE, b_now=now, b_since=fresh, b_tolerance=policy.tolerance_mb),
        quarantined=_one(tx, QUARANTINED),
        used_pct={(node, index): 100.0 * used / total for node, index, used, total, _ in memory if total > 0},
        busy_pct={(node, index): busy for node, index, _, _, busy in memory if busy is not None},
    )


def _one(tx: Tx, counted: Hot, **given: Any) -> int:
    return int(tx.rows(counted, given)[0][0])
