"""What a person may do to a job: stop it, or have it run again."""

from herdsman.control.services import Services
from herdsman.core.body import encode
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import JobFilter, JobId
from herdsman.core.states import JOB, JobState
from herdsman.db.connection import Tx
from herdsman.store import jobs, requeue

MOST_REQUEUED = 10_000
_BATCH = 200


def cancel_job(services: Services, job_id: JobId, *, who: str = "admin") -> JobState:
    """From here on the job is never done (J7). A held one is `cancelled` once its worker has let go."""
    return services.database.transact(lambda tx: requeue.cancel(tx, job_id, who))


def requeue_job(services: Services, job_id: JobId, *, who: str = "admin") -> None:
    """Run a job that has ended once more."""
    services.database.transact(lambda tx: _requeue_one(tx, services, job_id, None, who))


def requeue_edited_job(services: Services, job_id: JobId, payload: object, *, who: str = "admin") -> None:
    """The same, with another payload; the audit says that it was changed."""
    text = encode(payload, what="payload", limit=services.policy.max_payload_bytes)
    services.database.transact(lambda tx: _requeue_one(tx, services, job_id, text, who))


def requeue_jobs(services: Services, wanted: JobFilter, *, limit: int = 1000, who: str = "admin") -> int:
    """Requeue the ended jobs that match, in small transactions; how many there were."""
    if not 1 <= limit <= MOST_REQUEUED:
        raise InvalidRequest(f"limit is {limit}: it must be from 1 to {MOST_REQUEUED}")
    if not wanted.states or not JOB.terminal.issuperset(wanted.states):
        ends = ", ".join(sorted(JOB.terminal))
        raise InvalidRequest(f"a requeue must say which ended jobs it means: states may be {ends}")
    total = 0
    while total < limit:
        room = min(_BATCH, limit - total)
        done = services.database.transact(
            lambda tx, room=room: _requeue_some(tx, services, wanted, room, who)
        )
        total += done
        if done < room:
            break
    return total


def _requeue_one(tx: Tx, services: Services, job_id: JobId, payload: str | None, who: str) -> None:
    job = jobs.get(tx, job_id)
    if requeue.requeue(tx, [job_id], who, services.policy, payload) == 0:
        raise InvalidRequest(f"job {job_id!r} is {job.state}: only a job that has ended can be requeued")


def _requeue_some(tx: Tx, services: Services, wanted: JobFilter, limit: int, who: str) -> int:
    found = requeue.ended(tx, wanted, limit)
    return requeue.requeue(tx, found, who, services.policy, None) if found else 0
