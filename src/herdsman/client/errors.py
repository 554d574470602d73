"""How a job ended that brought no result, and a lease that was not given or is lost."""

from datetime import timedelta

from herdsman.errors import HerdsmanError


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


class LeaseDenied(HerdsmanError):
    """No GPU could be leased; `reason` is a stable code, and after `retry_after` it may be worth asking again."""

    def __init__(self, reason: str, detail: str, retry_after: timedelta | None) -> None:
        super().__init__(f"no lease was given ({reason}): {detail}")
        self.reason = reason
        self.detail = detail
        self.retry_after = retry_after


class LeaseLost(HerdsmanError):
    """The GPU may be another's by now: stop using it at once."""
