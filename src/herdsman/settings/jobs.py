"""What every job lives by: claims, retries, limits and how long it is kept."""

from datetime import timedelta

from pydantic import Field

from herdsman.core.model import JobPolicy
from herdsman.core.retry import RetryPolicy
from herdsman.settings.group import Group
from herdsman.settings.kinds import Count, Days, DaysOfAWeek, Positive, Seconds, SecondsOrZero


class JobSettings(Group):
    """Claims, retries, limits and retention of jobs."""

    claim_ttl_sec: Seconds = Field(
        default=30, description="Seconds after its last heartbeat that a worker keeps the right to its job."
    )
    sweep_interval_sec: Seconds = Field(
        default=5, description="Seconds between two looks for jobs that are due or were left behind."
    )
    cancel_grace_sec: SecondsOrZero = Field(
        default=30, description="Seconds that a cancelled job has to stop by itself."
    )

    max_attempts: Positive = Field(
        default=3, description="Attempts a job has, unless it brings its own number."
    )
    max_interruptions: Count = Field(
        default=20, description="Times a job may be interrupted through no fault of its own."
    )
    max_worker_losses: Positive = Field(
        default=2, description="Workers that may be lost while running a job before it is given up."
    )
    retry_backoff_base_sec: SecondsOrZero = Field(
        default=5, description="Seconds before the first retry; doubles with each one."
    )
    retry_backoff_cap_sec: SecondsOrZero = Field(
        default=300,
        description="Longest backoff, in seconds; up to half of it comes on top, to spread retries.",
    )
    priority_step_sec: SecondsOrZero = Field(
        default=60, description="Seconds of waiting that one point of priority is worth."
    )

    max_payload_bytes: Positive = Field(default=1_048_576, description="Largest payload of a job, in bytes.")
    max_result_bytes: Positive = Field(default=1_048_576, description="Largest result of a job, in bytes.")
    job_retention_days: Days = Field(
        default=30, description="Days that a finished job is kept; 0 keeps it for ever."
    )
    audit_retention_days: Days = Field(
        default=90,
        description="Days that the audit of workers and leases is kept, that of a job going with the job; 0 keeps it for ever.",
    )
    replay_days: DaysOfAWeek = Field(
        default=7,
        description="Days for which what each cycle of the control loop saw is kept, to be asked again; 0 keeps none.",
    )

    def policy(self) -> JobPolicy:
        return JobPolicy(
            claim_ttl=timedelta(seconds=self.claim_ttl_sec),
            cancel_grace=timedelta(seconds=self.cancel_grace_sec),
            retry=self._retry(),
            max_attempts=self.max_attempts,
            priority_step=timedelta(seconds=self.priority_step_sec),
            max_payload_bytes=self.max_payload_bytes,
            max_result_bytes=self.max_result_bytes,
            job_retention=_days(self.job_retention_days),
            audit_retention=_days(self.audit_retention_days),
        )

    @property
    def replayable_for(self) -> timedelta | None:
        """None where nothing is written down for it."""
        return _days(self.replay_days)

    def _retry(self) -> RetryPolicy:
        return RetryPolicy(
            base=timedelta(seconds=self.retry_backoff_base_sec),
            cap=timedelta(seconds=self.retry_backoff_cap_sec),
            max_interruptions=self.max_interruptions,
            max_worker_losses=self.max_worker_losses,
        )


def _days(days: int) -> timedelta | None:
    return timedelta(days=days) if days else None
