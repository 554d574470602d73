"""How a job ended, as a person would tell it: when, where, in how many attempts, and how long it took."""

from collections.abc import Sequence
from datetime import datetime

from herdsman.core.blockers import told
from herdsman.core.model import Attempt, AuditEntry, Job
from herdsman.core.reasons import Reason
from herdsman.core.spoken import spoken
from herdsman.core.states import JobState


def ended(job: Job, tried: Sequence[Attempt], history: Sequence[AuditEntry]) -> tuple[str, ...]:
    """What became of it, then where its time went. Attempts are kept for a while only: without them, less is said."""
    times = _times(job, tried)
    return (_outcome(job, tried, history), times) if times else (_outcome(job, tried, history),)


def _outcome(job: Job, tried: Sequence[Attempt], history: Sequence[AuditEntry]) -> str:
    at = told(job.finished_at or job.updated_at)
    match job.state:
        case JobState.DONE if job.saved_gpu is not None:
            spared = f"{job.saved_gpu.total_seconds():.1f} GPU seconds were saved"
            return f"its result had been made and was found at the service: {spared}"
        case JobState.DONE:
            return f"it was done at {at}{_by(tried)}, in {_attempts(job)}"
        case JobState.CANCELLED:
            return f"it was cancelled at {at} by {_canceller(history)}, {_meanwhile(tried)}"
        case _:
            error = f": {job.last_error}" if job.last_error else ""
            why = str(job.reason).replace("_", " ")
            return f"it was given up at {at} after {_attempts(job)}{_by(tried)} ({why}){error}"


def _canceller(history: Sequence[AuditEntry]) -> str:
    """Who asked for it; the worker that obeyed comes later."""
    asked = [each.actor for each in history if each.reason == Reason.CANCEL_REQUESTED]
    return asked[-1] if asked else history[-1].actor if history else "somebody"


def _meanwhile(tried: Sequence[Attempt]) -> str:
    if not tried:
        return "before it began"
    last = tried[-1]
    return (
        f"while worker {last.worker_id} ran it" if last.outcome == JobState.CANCELLED else "while it waited"
    )


def _by(tried: Sequence[Attempt]) -> str:
    return f" by worker {tried[-1].worker_id}" if tried else ""


def _attempts(job: Job) -> str:
    return "1 attempt" if job.attempts == 1 else f"{job.attempts} attempts"


def _times(job: Job, tried: Sequence[Attempt]) -> str:
    if not tried:
        return ""
    first, last = tried[0], tried[-1]
    waited = f"it waited {_between(job.created_at, first.claimed_at)} until a worker took it"
    if last.ended_at is None:
        return waited
    ran = _between(last.started_at or last.claimed_at, last.ended_at)
    if len(tried) == 1:
        return f"{waited}, and ran for {ran}"
    whole = _between(job.created_at, job.finished_at or last.ended_at)
    return f"{waited}, ran for {ran} in its last attempt, and took {whole} in all"


def _between(begin: datetime, end: datetime) -> str:
    return spoken(max(0.0, (end - begin).total_seconds()))
