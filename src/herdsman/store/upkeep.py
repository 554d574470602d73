"""What time does to jobs: due ones are queued, old ones are removed. Every pass is bounded."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, bindparam, delete, exists, insert, or_, select, update

from herdsman.core.machine import AnyMachine
from herdsman.core.model import JobId
from herdsman.core.reasons import Reason
from herdsman.core.states import JOB, LEASE, WORKER, JobState
from herdsman.db.connection import Tx, values
from herdsman.db.schema import (
    audit,
    checkpoints,
    cycles,
    job_attempts,
    job_tags,
    jobs,
    leases,
    logs,
    retention,
    workers,
)
from herdsman.db.statements import Hot
from herdsman.store import sights

BATCH = 500
CYCLES_KEPT = timedelta(days=7)
"""How long it can be asked what the control loop decided, and why."""

DUE = Hot(
    select(jobs.c.job_id)
    .where(jobs.c.status == bindparam("b_status"), jobs.c.run_at <= bindparam("b_now"))
    .order_by(jobs.c.run_at)
    .limit(BATCH)
    .with_for_update(skip_locked=True)
)

STAGE = Hot(
    lambda listed: (
        update(jobs)
        # The rows are locked as they were found; naming their state again would make the index a worse one.
        .where(jobs.c.job_id.in_(listed))
        .values(
            status=JobState.PENDING.value,
            reason=Reason.DUE.value,
            actor="leader",
            version=jobs.c.version + 1,
            updated_at=bindparam("b_now"),
        )
    )
)


def stage(tx: Tx, waiting: JobState) -> int:
    """Queue the next batch of jobs in the state `waiting` whose time has come."""
    wanted: dict[str, Any] = {"b_status": waiting.value, "b_now": tx.now()}
    due = [row[0] for row in tx.rows(DUE, wanted)]
    return tx.run(STAGE, wanted, due) if due else 0


def prune_jobs(tx: Tx, before: datetime) -> Sequence[JobId]:
    """Remove the next batch of jobs that ended before then, with all that is recorded of them; which they were."""
    query = select(jobs.c.job_id).where(jobs.c.finished_at < before).order_by(jobs.c.finished_at)
    found = [JobId(job_id) for job_id in values(tx, query.limit(BATCH).with_for_update(skip_locked=True))]
    if not found:
        return ()
    for table in (job_tags, job_attempts, logs, checkpoints, jobs):
        tx.execute(delete(table).where(table.c.job_id.in_(found)))
    tx.execute(delete(audit).where(audit.c.object_kind == JOB.kind, audit.c.object_id.in_(found)))
    return found


def prune_audit(tx: Tx, before: datetime) -> int:
    """Remove the next batch of audit rows of workers and leases that ended before then, never a part of one's.

    A job's go with the job, and pools have no end.
    """
    newer = audit.alias("newer")
    same = (newer.c.object_kind == audit.c.object_kind, newer.c.object_id == audit.c.object_id)
    query = (
        select(audit.c.id)
        .where(audit.c.ts < before, or_(_ended_object(WORKER, workers), _ended_object(LEASE, leases)))
        .where(~exists(select(newer.c.id).where(*same, newer.c.ts >= before)))
    )
    found = values(tx, query.order_by(audit.c.ts).limit(BATCH))
    if found:
        allow_pruning(tx, before)
        tx.execute(delete(audit).where(audit.c.id.in_(found)))
    return len(found)


def prune_cycles(tx: Tx, before: datetime) -> int:
    """Remove the next batch of records of control cycles that began before then, and then of what they saw."""
    query = select(cycles.c.id).where(cycles.c.started_at < before).order_by(cycles.c.started_at)
    found = values(tx, query.limit(BATCH).with_for_update(skip_locked=True))
    if found:
        tx.execute(delete(cycles).where(cycles.c.id.in_(found)))
    return len(found) or sights.prune(tx, before)


def _ended_object(machine: AnyMachine, table: Table) -> ColumnElement[bool]:
    living = [state.value for state in machine.live]
    alive = select(table.c.version).where(
        table.c[machine.key] == audit.c.object_id, table.c.status.in_(living)
    )
    return and_(audit.c.object_kind == machine.kind, ~exists(alive))


def allow_pruning(tx: Tx, before: datetime) -> None:
    """Of things that have no end the audit lets go only what is older than this; and here it stays on record."""
    mine = retention.c.name == "audit"
    current = tx.execute(select(retention.c.prune_before).where(mine).with_for_update()).scalar_one_or_none()
    if current is None:
        tx.execute(insert(retention).values(name="audit", prune_before=before))
    elif current < before:
        tx.execute(update(retention).where(mine).values(prune_before=before))
