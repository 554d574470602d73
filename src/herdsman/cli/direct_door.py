"""Jobs straight from the database, for who sits at the control plane's own machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from herdsman.control import commands
from herdsman.control.services import Services
from herdsman.core.model import JobFilter, JobId
from herdsman.core.states import JOB
from herdsman.ports import Clock
from herdsman.wire.jobs import (
    AttemptOut,
    AttemptsOut,
    EventOut,
    EventsOut,
    JobDetail,
    JobIn,
    JobOut,
    JobsOut,
    LogOut,
    LogsOut,
    ResultOut,
    RetryIn,
    SubmittedOut,
)


@dataclass(frozen=True, slots=True)
class DirectDoor:
    services: Services
    clock: Clock

    def alive(self) -> None:
        """The database was looked at when it was opened."""

    def submit(self, jobs: Sequence[JobIn]) -> Sequence[SubmittedOut]:
        done = commands.submit_jobs(self.services, [job.new_job() for job in jobs])
        return [SubmittedOut(job_id=each.job_id, created=each.created) for each in done]

    def page(self, wanted: JobFilter, after: str | None, limit: int) -> JobsOut:
        page = commands.list_jobs(self.services, wanted, after=after, limit=limit)
        return JobsOut(jobs=tuple(JobOut.of(each) for each in page.jobs), next=page.next)

    def look(self, job_id: str) -> JobDetail:
        return JobDetail.of(commands.find_job(self.services, JobId(job_id)))

    def attempts(self, job_id: str) -> AttemptsOut:
        found = commands.find_attempts(self.services, JobId(job_id))
        return AttemptsOut(attempts=tuple(AttemptOut.of(each) for each in found))

    def history(self, job_id: str) -> EventsOut:
        found = commands.find_history(self.services, JobId(job_id))
        return EventsOut(events=tuple(EventOut.of(each) for each in found))

    def result(self, job_id: str) -> ResultOut | None:
        job = commands.find_job(self.services, JobId(job_id))
        return ResultOut.of(job) if job.state in JOB.terminal else None

    def logs(self, job_id: str, since: str | None) -> LogsOut:
        page = commands.read_logs(self.services, JobId(job_id), since=since)
        pieces = (
            LogOut(claim_token=each.claim_token, first=each.first, ts=each.ts, lines=each.lines)
            for each in page.pieces
        )
        return LogsOut(pieces=tuple(pieces), next=page.next, ended=page.ended)

    def cancel(self, job_id: str) -> str:
        return commands.cancel_job(self.services, JobId(job_id))

    def retry(self, job_id: str, wanted: RetryIn) -> None:
        if wanted.edit:
            commands.requeue_edited_job(self.services, JobId(job_id), wanted.payload)
        else:
            commands.requeue_job(self.services, JobId(job_id))

    def pause(self, duration: timedelta) -> None:
        self.clock.sleep(duration)

    def close(self) -> None:
        self.services.database.close()
