"""Where a job is on an external service: written before it is handed over, kept for whoever takes it up next (S3-04)."""

from sqlalchemy import bindparam, func, update

from herdsman.core.model import ClaimKey, WorkerId
from herdsman.core.service import MarkStatus, ServiceMark
from herdsman.db.connection import Tx
from herdsman.db.schema import jobs
from herdsman.db.statements import Hot
from herdsman.store.claims import OWN_CLAIM, named

# No step of the job, so neither its version nor the audit moves.
MARK = Hot(
    update(jobs)
    .where(*OWN_CLAIM)
    .values(
        service_job_id=bindparam("b_external"),
        service_status=bindparam("b_status"),
        service_submitted_at=func.coalesce(
            bindparam("b_submitted", type_=jobs.c.service_submitted_at.type), jobs.c.service_submitted_at
        ),
        last_service_check=bindparam("b_checked"),
    )
)


def mark(tx: Tx, key: ClaimKey, mark: ServiceMark, worker: WorkerId | None = None) -> bool:
    """False when the claim is another's by now, or another worker's."""
    submitted = mark.status is MarkStatus.SUBMITTED
    values = {
        "b_external": mark.external_id,
        "b_status": mark.status.value,
        "b_submitted": tx.now() if submitted else None,
        # What was handed over anew has not been asked about yet.
        "b_checked": None if submitted else tx.now(),
    }
    return tx.run(MARK, {**named(key), **values, "b_worker": worker}) == 1
