"""Jobs and workers with everything that a test does not name filled in."""

from typing import Any

from sqlalchemy import text

from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.fleet.commands import move_worker, register_worker
from herdsman.ids import DEFAULT_POOL, JobId, PoolId, WorkerId
from herdsman.jobs.commands import find_history, submit_job
from herdsman.jobs.model import AuditEntry, Claim, Failure, FailureClass, NewJob
from herdsman.jobs.worker_commands import complete_job, fail_job
from herdsman.states import JOB, JobStatus, Reason, WorkerStatus
from tests.support.worker_calls import claim_job

BROKEN = Failure(kind=FailureClass.JOB_ERROR, error="the handler raised")
HOPELESS = Failure(kind=FailureClass.USER_ERROR, error="no such model")


def a_job(services: Services, **wanted: Any) -> JobId:
    asked: dict[str, Any] = {"type": "demo", **wanted}
    return submit_job(services, NewJob(**asked)).job_id


def a_worker(services: Services, name: str = "w1", *, pool: str = DEFAULT_POOL) -> WorkerId:
    """One that is active, so that it may claim."""
    worker_id = WorkerId(name)
    register_worker(services, worker_id, pool=PoolId(pool))
    move_worker(services, worker_id, WorkerStatus.ACTIVE, Reason.READY)
    return worker_id


def a_claim(services: Services, worker: str = "w1", **wanted: Any) -> Claim:
    """A new job in the hands of a new worker."""
    a_job(services, **wanted)
    return claimed(services, a_worker(services, worker))


def claimed(services: Services, worker_id: WorkerId) -> Claim:
    claim = claim_job(services, worker_id)
    assert claim is not None, "there was no job to claim"
    return claim


def an_ended_job(services: Services, state: JobStatus, worker: str = "w1", **wanted: Any) -> JobId:
    """A job that was claimed once and is now `done` or `dead_letter`."""
    claim = a_claim(services, worker, **wanted)
    if state is JobStatus.DONE:
        complete_job(services, claim.key, {"ok": True})
    else:
        fail_job(services, claim.key, HOPELESS)
    return claim.key.job_id


def sql(database: Database, statement: str, **values: Any) -> int:
    """What a person could type, past every command of ours; how many rows it touched."""
    return database.transact(lambda tx: tx.execute(text(statement), values).rowcount)


def scalar(database: Database, query: str, **values: Any) -> Any:
    return database.read(lambda tx: tx.execute(text(query), values).scalar())


def replayed(services: Services, job_id: JobId) -> str | None:
    """The state that follows from the audit alone, which must be without a gap and a legal story."""
    state = None
    for number, entry in enumerate(find_history(services, job_id), start=1):
        assert entry.seq == number, f"the audit of {job_id} has a gap before {entry.seq}"
        assert entry.from_status == state, f"{entry} does not follow {state}"
        assert _follows(entry), f"{entry} is no legal move"
        state = entry.to_status
    return state


def _follows(entry: AuditEntry) -> bool:
    to = JobStatus(entry.to_status)
    if entry.from_status is None:
        return to in JOB.initial
    here = JobStatus(entry.from_status)
    asked_to_cancel = to is here and entry.reason == Reason.CANCEL_REQUESTED
    return asked_to_cancel or JOB.allows(here, to) or to in JOB.reopens.get(here, ())
