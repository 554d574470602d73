"""Where the commands about jobs go: over HTTP to a server, or straight to the database of this machine."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from herdsman.core.model import JobFilter
from herdsman.wire.jobs import (
    AttemptsOut,
    EventsOut,
    JobDetail,
    JobIn,
    JobsOut,
    LogsOut,
    ResultOut,
    RetryIn,
    SubmittedOut,
)


class Door(Protocol):
    def alive(self) -> None:
        """Raises when nobody is behind it."""
        ...

    def submit(self, jobs: Sequence[JobIn]) -> Sequence[SubmittedOut]: ...

    def page(self, wanted: JobFilter, after: str | None, limit: int) -> JobsOut: ...

    def look(self, job_id: str) -> JobDetail: ...

    def attempts(self, job_id: str) -> AttemptsOut: ...

    def history(self, job_id: str) -> EventsOut: ...

    def result(self, job_id: str) -> ResultOut | None:
        """None while the job has not ended."""
        ...

    def logs(self, job_id: str, since: str | None) -> LogsOut: ...

    def cancel(self, job_id: str) -> str:
        """The job's status from here on."""
        ...

    def retry(self, job_id: str, wanted: RetryIn) -> None: ...

    def pause(self, duration: timedelta) -> None: ...

    def close(self) -> None: ...
