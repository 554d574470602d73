"""How a job ended that brought no result."""

from herdsman.core.errors import HerdsmanError


class JobFailed(HerdsmanError):
    """The job will not be tried again: its result does not exist, and waiting longer does not help."""

    def __init__(
        self, job_id: str, *, failure_class: str | None, error: str | None, attempts: int | None
    ) -> None:
        tried = "" if attempts is None else f" after {attempts} attempt{'' if attempts == 1 else 's'}"
        super().__init__(
            f"job {job_id} failed{tried} ({failure_class or 'unknown'}): {error or 'no error was kept'}"
        )
        self.job_id = job_id
        self.failure_class = failure_class
        self.error = error
        self.attempts = attempts


class JobCancelled(HerdsmanError):
    """Somebody cancelled the job."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} was cancelled")
        self.job_id = job_id
