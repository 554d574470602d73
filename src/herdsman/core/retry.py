"""What happens to a job after an attempt ended without a result: when it runs again, or why never.

Attempts are counted when a job is claimed, so a worker that dies in silence uses one up too. An
interruption (a drain, a spot machine taken back) is not the job's fault: it is counted apart and given
back from the attempts. A lost worker counts as an attempt and is counted apart as well, because a job
that kills what runs it must stop long before it has killed a fleet.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from hashlib import blake2b

from herdsman.core.reasons import Reason


class FailureClass(StrEnum):
    USER_ERROR = "user_error"
    """The job itself is wrong; running it again would fail the same way."""
    JOB_ERROR = "job_error"
    """The handler raised, and did not say more."""
    OUT_OF_MEMORY = "out_of_memory"
    INFRASTRUCTURE = "infrastructure"
    INTERRUPTED = "interrupted"
    TIMEOUT = "timeout"
    WORKER_LOST = "worker_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    base: timedelta = timedelta(seconds=5)
    cap: timedelta = timedelta(minutes=5)
    jitter: float = 0.5
    """How much longer than the plain backoff a delay may be, as a share of it."""
    max_interruptions: int = 20
    max_worker_losses: int = 2
    max_out_of_memory: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What a job has been through, the attempt that just ended included."""

    attempts: int
    interruptions: int = 0
    worker_losses: int = 0
    out_of_memory: int = 0

    @property
    def spent(self) -> int:
        return self.attempts - self.interruptions


@dataclass(frozen=True, slots=True)
class RetryAfter:
    delay: timedelta


@dataclass(frozen=True, slots=True)
class RunAgain:
    """Back to the queue at once, without waiting."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    reason: Reason


Outcome = RetryAfter | RunAgain | GiveUp


def after_failure(
    failure: FailureClass, tally: Tally, *, max_attempts: int, policy: RetryPolicy, job_id: str
) -> Outcome:
    exhausted = _exhausted(failure, tally, max_attempts, policy)
    if exhausted is not None:
        return GiveUp(exhausted)
    if failure in (FailureClass.INTERRUPTED, FailureClass.WORKER_LOST):
        return RunAgain()
    return RetryAfter(backoff(job_id, tally.spent, policy))


def _exhausted(failure: FailureClass, tally: Tally, max_attempts: int, policy: RetryPolicy) -> Reason | None:
    limits = {
        FailureClass.USER_ERROR: (True, Reason.USER_ERROR),
        FailureClass.INTERRUPTED: (
            tally.interruptions >= policy.max_interruptions,
            Reason.INTERRUPTED_TOO_OFTEN,
        ),
        FailureClass.WORKER_LOST: (tally.worker_losses >= policy.max_worker_losses, Reason.KILLS_WORKERS),
        FailureClass.OUT_OF_MEMORY: (
            tally.out_of_memory >= policy.max_out_of_memory,
            Reason.OUT_OF_MEMORY_AGAIN,
        ),
    }
    over, reason = limits.get(failure, (False, Reason.ATTEMPTS_EXHAUSTED))
    if over:
        return reason
    return Reason.ATTEMPTS_EXHAUSTED if tally.spent >= max_attempts else None


def backoff(job_id: str, attempt: int, policy: RetryPolicy) -> timedelta:
    """Doubles from `base` to `cap`, then adds a share that depends on the job and the attempt alone.

    The spread is derived, not drawn, so that a replay of the same history waits the same time.
    """
    doublings = min(max(attempt - 1, 0), 62)  # enough to reach any cap, few enough not to overflow
    plain = min(policy.cap.total_seconds(), policy.base.total_seconds() * 2.0**doublings)
    return timedelta(seconds=plain * (1 + policy.jitter * spread(job_id, attempt)))


def spread(job_id: str, attempt: int) -> float:
    """A number in [0, 1) that looks random and is the same for the same job and attempt."""
    digest = blake2b(f"{job_id}:{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
