"""Everything that the database wrote down, for whoever judges a whole history: one statement for each table.

There is no limit on any of these reads. They are for herds that are over, and small: those of tests and simulations.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select

from herdsman.db.connection import Tx
from herdsman.db.schema import audit, job_attempts, jobs, leases, pools, workers
from herdsman.db.statements import PreparedStatement, Row
from herdsman.states import LEASE, POOL, WORKER

# In the order of the numbers, which on a server is nearly that of the commits; of one object it is exactly that.
_MOVES = PreparedStatement(
    select(
        audit.c.object_kind,
        audit.c.object_id,
        audit.c.seq,
        audit.c.from_status,
        audit.c.to_status,
        audit.c.reason,
        audit.c.actor,
        audit.c.ts,
        audit.c.details,
    ).order_by(audit.c.id)
)
_JOBS = PreparedStatement(
    select(
        jobs.c.job_id,
        jobs.c.status,
        jobs.c.version,
        jobs.c.claim_token,
        jobs.c.attempts,
        jobs.c.max_attempts,
        jobs.c.interruptions,
        jobs.c.worker_losses,
        jobs.c.pool,
        jobs.c.priority,
        jobs.c.result,
        jobs.c.created_at,
        jobs.c.run_at,
    )
)
_ATTEMPTS = PreparedStatement(
    select(
        job_attempts.c.job_id,
        job_attempts.c.claim_token,
        job_attempts.c.worker_id,
        job_attempts.c.claimed_at,
        job_attempts.c.ended_at,
        job_attempts.c.outcome,
        job_attempts.c.reason,
    )
)
_Query = Select[Any, *tuple[Any, ...]]


def _moving(table: Any, key: str, *more: str) -> PreparedStatement:
    query: _Query = select(table.c[key], table.c.status, table.c.version, *(table.c[name] for name in more))
    return PreparedStatement(query)


_WORKERS = _moving(workers, WORKER.key, "instance_name")
_POOLS = _moving(pools, POOL.key)
_LEASES = _moving(leases, LEASE.key, "gpu_uuid", "lease_seq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Plain rows, with their columns in the order of the statements of this file."""

    moves: list[Row]
    jobs: list[Row]
    attempts: list[Row]
    workers: list[Row]
    pools: list[Row]
    leases: list[Row]


def everything(tx: Tx) -> Whole:
    return Whole(
        moves=tx.rows(_MOVES, {}),
        jobs=tx.rows(_JOBS, {}),
        attempts=tx.rows(_ATTEMPTS, {}),
        workers=tx.rows(_WORKERS, {}),
        pools=tx.rows(_POOLS, {}),
        leases=tx.rows(_LEASES, {}),
    )
