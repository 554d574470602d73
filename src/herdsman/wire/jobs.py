"""Jobs, as people and their programs send and see them."""

from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from herdsman.core.model import (
    DEFAULT_AGENT,
    DEFAULT_POOL,
    Attempt,
    AuditEntry,
    Job,
    JobId,
    NewJob,
    PoolId,
    Submitted,
)
from herdsman.core.order import HIGHEST, LOWEST
from herdsman.core.request import LARGEST_MEMORY_MB, MAX_ATTEMPTS, MAX_TAGS
from herdsman.core.states import LEASE
from herdsman.wire.ids import lease_id
from herdsman.wire.model import Duration, Reply, Request, model_name, name


class JobIn(Request):
    """A job to run. Sent again with the same id and the same body it is the same job."""

    type: Annotated[str, name(64)]
    payload: Any = Field(default_factory=dict[str, Any], description="Any JSON; it is data for the handler.")
    job_id: Annotated[str, name(128)] | None = None
    idempotency_key: Annotated[str, name(255)] | None = None
    agent: Annotated[str, name(255)] | None = Field(default=None, description="For whom it runs.")
    pool: Annotated[str, name(128)] = DEFAULT_POOL
    priority: int = Field(default=0, ge=LOWEST, le=HIGHEST)
    tags: tuple[Annotated[str, name(64)], ...] = Field(default=(), max_length=MAX_TAGS, fail_fast=True)
    run_at: AwareDatetime | None = None
    delay_seconds: Duration | None = None
    timeout_seconds: Duration | None = None
    max_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)] | None = None
    retry_base_seconds: Duration | None = None
    retry_cap_seconds: Duration | None = None
    model: Annotated[str, model_name()] | None = Field(
        default=None, description="A worker that has it loaded is preferred."
    )
    gpu_memory_mb: Annotated[int, Field(ge=1, le=LARGEST_MEMORY_MB)] | None = Field(
        default=None, description="How much of a GPU it needs; without a number, all of it."
    )
    concurrency_key: Annotated[str, name(128)] | None = Field(
        default=None, description="Only so many jobs of one key run at a time."
    )
    allow_cpu: bool = Field(default=False, description="Where GPUs are short, it may run without one.")
    max_defer_seconds: Duration | None = Field(
        default=None, description="How long it may be put off before it is refused."
    )

    def new_job(self, agent: str | None = None) -> NewJob:
        """`agent` is the one of the caller, for a body that names none."""
        return NewJob(
            type=self.type,
            payload=self.payload,
            job_id=None if self.job_id is None else JobId(self.job_id),
            idempotency_key=self.idempotency_key,
            agent=self.agent or agent or DEFAULT_AGENT,
            pool=PoolId(self.pool),
            priority=self.priority,
            tags=self.tags,
            run_at=self.run_at,
            delay=_span(self.delay_seconds),
            timeout=_span(self.timeout_seconds),
            max_attempts=self.max_attempts,
            retry_base=_span(self.retry_base_seconds),
            retry_cap=_span(self.retry_cap_seconds),
            model=self.model,
            gpu_memory_mb=self.gpu_memory_mb,
            concurrency_key=self.concurrency_key,
            allow_cpu=self.allow_cpu,
            max_defer=_span(self.max_defer_seconds),
        )


class JobsIn(Request):
    jobs: tuple[JobIn, ...] = Field(min_length=1, max_length=1000, fail_fast=True)


class SubmittedOut(Reply):
    job_id: str
    created: bool = Field(description="False when the same job had been submitted before.")
    admission: str | None = Field(
        default=None, description="Why it was put off, or sent to another pool than it asked for."
    )
    pool: str | None = Field(default=None, description="The pool that it was sent to instead.")
    run_at: datetime | None = Field(default=None, description="Until when it was put off.")

    @staticmethod
    def of(done: Submitted) -> "SubmittedOut":
        return SubmittedOut(
            job_id=done.job_id,
            created=done.created,
            admission=done.admission,
            pool=done.pool,
            run_at=done.run_at,
        )


class SubmittedManyOut(Reply):
    jobs: tuple[SubmittedOut, ...]


_SAVED = "GPU time that was spared because its result was found at the service; null where it was made."


class JobOut(Reply):
    job_id: str
    type: str
    agent: str
    pool: str
    priority: int
    tags: tuple[str, ...]
    status: str
    reason: str
    attempts: int
    interruptions: int = Field(description="Attempts that were cut short through no fault of the job.")
    max_attempts: int
    worker_id: str | None
    progress: float | None
    progress_note: str | None
    failure_class: str | None
    last_error: str | None
    run_at: datetime
    created_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    timeout_seconds: float | None
    cancel_requested: bool
    version: int = Field(description="Rises with every change of status.")
    model: str | None = None
    gpu_memory_mb: int | None = None
    concurrency_key: str | None = None
    admission: str | None = Field(default=None, description="Why it was put off, or sent to another pool.")

    @staticmethod
    def of(job: Job) -> "JobOut":
        return JobOut(**_shared(job))


class JobDetail(JobOut):
    """One job, with what was asked for."""

    payload: Any
    idempotency_key: str | None
    service_job_id: str | None = Field(
        default=None, description="Where it is, or was made, on an external service."
    )
    service_status: str | None = None
    saved_gpu_seconds: float | None = Field(default=None, description=_SAVED)

    @staticmethod
    def of(job: Job) -> "JobDetail":
        return JobDetail(
            **_shared(job),
            payload=job.payload,
            idempotency_key=job.idempotency_key,
            service_job_id=job.service_job_id,
            service_status=job.service_status,
            saved_gpu_seconds=_seconds(job.saved_gpu),
        )


class JobsOut(Reply):
    jobs: tuple[JobOut, ...]
    next: str | None = Field(description="Send it as `after` for the page that follows; null on the last.")


class ResultOut(Reply):
    job_id: str
    status: str
    result: Any = None
    failure_class: str | None = None
    last_error: str | None = None
    saved_gpu_seconds: float | None = Field(default=None, description=_SAVED)

    @staticmethod
    def of(job: Job) -> "ResultOut":
        return ResultOut(
            job_id=job.job_id,
            status=job.state,
            result=job.result,
            failure_class=job.failure_class,
            last_error=job.last_error,
            saved_gpu_seconds=_seconds(job.saved_gpu),
        )


class AttemptOut(Reply):
    attempt: int
    claim_token: int
    worker_id: str
    pool: str
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    outcome: str | None
    reason: str | None
    failure_class: str | None
    error: str | None

    @staticmethod
    def of(attempt: Attempt) -> "AttemptOut":
        return AttemptOut(
            attempt=attempt.attempt,
            claim_token=attempt.claim_token,
            worker_id=attempt.worker_id,
            pool=attempt.pool,
            claimed_at=attempt.claimed_at,
            started_at=attempt.started_at,
            ended_at=attempt.ended_at,
            outcome=attempt.outcome,
            reason=attempt.reason,
            failure_class=attempt.failure_class,
            error=attempt.error,
        )


class AttemptsOut(Reply):
    attempts: tuple[AttemptOut, ...]


class EventOut(Reply):
    """One move of a job, a worker, a pool or a lease, as the audit has it."""

    id: int | None = None
    ts: datetime
    event: str
    kind: str
    object_id: str
    seq: int
    from_status: str | None
    to_status: str
    reason: str
    actor: str

    @staticmethod
    def of(entry: AuditEntry) -> "EventOut":
        return EventOut(
            id=entry.id,
            ts=entry.ts,
            event=entry.event_type,
            kind=entry.kind,
            object_id=lease_id(entry.object_id) if entry.kind == LEASE.kind else entry.object_id,
            seq=entry.seq,
            from_status=entry.from_state,
            to_status=entry.to_state,
            reason=entry.reason,
            actor=entry.actor,
        )


class EventsOut(Reply):
    events: tuple[EventOut, ...]
    next: str | None = None


class LogOut(Reply):
    claim_token: int
    first: int
    ts: datetime
    lines: tuple[str, ...]


class LogsOut(Reply):
    pieces: tuple[LogOut, ...]
    next: str | None = Field(description="Send it as `since` to get only what came later.")
    ended: bool = Field(description="The job has ended: no more will come.")


class CancelOut(Reply):
    job_id: str
    status: str


class RetryIn(Request):
    """A job that has ended runs once more; with a payload, with that one."""

    payload: Any = None
    edit: bool = Field(default=False, description="Whether `payload` replaces the job's own.")


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _shared(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "type": job.type,
        "agent": job.agent,
        "pool": job.pool,
        "priority": job.priority,
        "tags": job.tags,
        "status": job.state,
        "reason": job.reason,
        "attempts": job.attempts,
        "interruptions": job.interruptions,
        "max_attempts": job.max_attempts,
        "worker_id": job.worker_id,
        "progress": job.progress,
        "progress_note": job.progress_note,
        "failure_class": job.failure_class,
        "last_error": job.last_error,
        "run_at": job.run_at,
        "created_at": job.created_at,
        "claimed_at": job.claimed_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "timeout_seconds": _seconds(job.timeout),
        "cancel_requested": job.cancel_requested_at is not None,
        "version": job.version,
        "model": job.model,
        "gpu_memory_mb": job.gpu_memory_mb,
        "concurrency_key": job.concurrency_key,
        "admission": job.admission,
    }
