"""Questions about jobs."""

from collections.abc import Mapping, Sequence

from herdsman.control.services import Services
from herdsman.core.model import Attempt, AuditEntry, Job, JobFilter, JobId
from herdsman.core.states import JOB, JobState
from herdsman.store import jobs
from herdsman.store.jobs import Page


def find_job(services: Services, job_id: JobId) -> Job:
    return services.database.read(lambda tx: jobs.get(tx, job_id))


def list_jobs(
    services: Services, wanted: JobFilter | None = None, *, after: str | None = None, limit: int = 50
) -> Page:
    """Newest first, a page at a time; `after` is the `next` of the page before."""
    return services.database.read(lambda tx: jobs.page(tx, wanted or JobFilter(), after=after, limit=limit))


def count_jobs(services: Services) -> Mapping[JobState, int]:
    return services.database.read(jobs.count_by_state)


def find_attempts(services: Services, job_id: JobId) -> Sequence[Attempt]:
    return services.database.read(lambda tx: jobs.attempts(tx, job_id))


def find_history(services: Services, job_id: JobId) -> Sequence[AuditEntry]:
    return services.database.read(lambda tx: jobs.history(tx, JOB.kind, job_id))
