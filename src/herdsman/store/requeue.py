"""Changes that a person asks for: cancel a job, or put one that has ended back into the queue."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import null, select, update

from herdsman.core.errors import NotFound
from herdsman.core.model import JobFilter, JobId, JobPolicy
from herdsman.core.order import place
from herdsman.core.reasons import Reason
from herdsman.core.request import check_name
from herdsman.core.states import HELD, JOB, JobState
from herdsman.db.connection import Tx
from herdsman.db.schema import SERVICE, jobs
from herdsman.store.jobs import matching


def cancel(tx: Tx, job_id: JobId, who: str) -> JobState:
    """A waiting job ends at once; of a held one the worker is told, and its end follows when it is gone."""
    state, asked_before = _locked(tx, job_id)
    if state in JOB.terminal or asked_before:
        return state
    values: dict[str, Any] = {"version": jobs.c.version + 1, "updated_at": tx.now(), "actor": who}
    if state in HELD:
        values |= {"reason": Reason.CANCEL_REQUESTED.value, "cancel_requested_at": tx.now()}
    else:
        values |= {
            "status": JobState.CANCELLED.value,
            "reason": Reason.CANCELLED.value,
            "finished_at": tx.now(),
        }
    tx.execute(update(jobs).where(jobs.c.job_id == job_id, jobs.c.status == state.value).values(values))
    return state if state in HELD else JobState.CANCELLED


def _locked(tx: Tx, job_id: JobId) -> tuple[JobState, bool]:
    check_name("job_id", job_id, 128)
    query = select(jobs.c.status, jobs.c.cancel_requested_at).where(jobs.c.job_id == job_id).with_for_update()
    row = tx.execute(query).one_or_none()
    if row is None:
        raise NotFound(f"there is no job {job_id!r}")
    return JobState(row.status), row.cancel_requested_at is not None


def ended(tx: Tx, wanted: JobFilter, limit: int) -> list[JobId]:
    """Jobs that have ended and match, oldest end first."""
    query = select(jobs.c.job_id).where(*matching(wanted), jobs.c.finished_at.is_not(None))
    return [JobId(job_id) for job_id in tx.execute(query.order_by(jobs.c.finished_at).limit(limit)).scalars()]


def requeue(tx: Tx, job_ids: Sequence[JobId], who: str, policy: JobPolicy, payload: str | None) -> int:
    """Back into the queue with a clean slate. The raised token makes every claim of before stale (J6)."""
    query = select(jobs.c.job_id, jobs.c.priority).where(jobs.c.job_id.in_(job_ids)).with_for_update()
    found = tx.execute(query.where(jobs.c.status.in_([str(state) for state in JOB.terminal]))).all()
    for row in found:
        values = _REOPENED | {
            "updated_at": tx.now(),
            "actor": who,
            "run_at": tx.now(),
            "place": place(tx.now(), row.priority, policy.priority_step),
        }
        if payload is not None:
            values |= {"payload": payload, "reason": Reason.REQUEUED_EDITED.value}
        tx.execute(update(jobs).where(jobs.c.job_id == row.job_id).values(values))
    return len(found)


_NOTHING = (
    "finished_at",
    "result",
    "cancel_requested_at",
    "failure_class",
    "last_error",
    "progress",
    "progress_at",
    "saved_gpu_s",
)
_REOPENED: dict[str, Any] = {
    **dict.fromkeys(_NOTHING, null()),
    **dict.fromkeys(("progress_note", "started_at", "claimed_at", "owner_pool"), null()),
    **dict.fromkeys(SERVICE, null()),  # an old run on an external service is not this one
    **dict.fromkeys(("attempts", "interruptions", "worker_losses", "out_of_memory"), 0),
    "status": JobState.PENDING.value,
    "reason": Reason.REQUEUED.value,
    "version": jobs.c.version + 1,
    "claim_token": jobs.c.claim_token + 1,
}
