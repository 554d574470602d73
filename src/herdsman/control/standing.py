"""Where a job stands that does not wait in the queue: not yet, in somebody's hands, or at its end."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from herdsman.core.blockers import Block, Blocker, told
from herdsman.core.control_policy import ControlPolicy
from herdsman.core.gating import Limit
from herdsman.core.model import Job
from herdsman.core.states import JobState

LATE = timedelta(minutes=1)
"""A job is queued within a second of its time, where a control plane runs."""


def not_yet(job: Job, now: datetime, rules: ControlPolicy) -> Sequence[Blocker]:
    """Why it is not even in the queue."""
    late = [_not_staged(job)] if now - job.run_at > LATE else []
    if job.state is JobState.FAILED:
        return *late, _backoff(job)
    return *late, _delayed(job) if job.admission is None else _put_off(job, rules)


def held(job: Job) -> str:
    until = "" if job.claim_expires_at is None else f" until {job.claim_expires_at:%H:%M:%S} UTC"
    return f"worker {job.worker_id} holds it{until}"


def let_in(job: Job) -> str | None:
    """What a limit at the door did to a job that waits in the queue by now."""
    if job.admission is None:
        return None
    return (
        f"it was let in under the limit {job.admission}: put off until it was due, or sent to pool {job.pool}"
    )


def _not_staged(job: Job) -> Blocker:
    return Blocker(
        code=Block.NOT_STAGED,
        text="its time has come and nobody has queued it: no control plane is there",
        since=job.run_at,
        ends="start one: herdsman up",
    )


def _delayed(job: Job) -> Blocker:
    return Blocker(
        code=Block.DELAYED,
        text=f"its time comes at {told(job.run_at)}",
        since=job.created_at,
        ends="it was submitted to run then, and is queued at that moment",
    )


def _put_off(job: Job, rules: ControlPolicy) -> Blocker:
    return Blocker(
        code=Block.PUT_OFF,
        text=f"it was put off until {told(job.run_at)} by the limit {job.admission}: {_limit(job, rules)}",
        since=job.created_at,
        ends="it is queued then; the limits: herdsman policy show",
    )


def _limit(job: Job, rules: ControlPolicy) -> str:
    limits = rules.limits_of(job.agent)
    match job.admission:
        case Limit.RATE if limits.rate_per_second is not None:
            return f"agent {job.agent} may submit {limits.rate_per_second:g} jobs a second"
        case Limit.GPU_SECONDS if limits.gpu_seconds_per_day is not None:
            return f"agent {job.agent} has used its {limits.gpu_seconds_per_day:g} GPU seconds of the day"
        case Limit.GPU_MEMORY:
            return "too much GPU memory was in use"
        case _:
            return f"agent {job.agent} had reached it"


def _backoff(job: Job) -> Blocker:
    return Blocker(
        code=Block.BACKOFF,
        text=f"it is tried again at {told(job.run_at)}: attempt {job.attempts} of {job.max_attempts} failed",
        since=job.updated_at,
        ends=f"or at once, with: herdsman retry {job.job_id}",
    )
