"""Jobs, as people send and see them, and as a worker claims, keeps and finishes them."""

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, cast

from pydantic import AwareDatetime, Field

from herdsman.core.model import (
    DEFAULT_AGENT,
    DEFAULT_POOL,
    Attempt,
    AuditEntry,
    Claim,
    ClaimKey,
    Failure,
    Job,
    JobId,
    NewJob,
    PoolId,
    Submitted,
    WorkerId,
)
from herdsman.core.order import HIGHEST, LOWEST
from herdsman.core.request import LARGEST_MEMORY_MB, MAX_ATTEMPTS, MAX_TAGS
from herdsman.core.retry import FailureClass
from herdsman.core.saved import MOST_SAVED
from herdsman.core.service import MarkStatus, ServiceMark
from herdsman.core.states import LEASE, JobState
from herdsman.core.work import MOST_AT_ONCE, Ask, Done, Ending, Exchange, Failed, GivenBack, Told
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


_SUM = re.compile(r"[0-9a-f]{64}", re.ASCII)


def sha256_of(result: object, name: str) -> str | None:
    """The sum that the result tells for a file; None where it tells none. Handlers may return anything."""
    for output in _outputs(result):
        if output.get("name") == name:
            told = output.get("sha256")
            return told if isinstance(told, str) and _SUM.fullmatch(told) else None
    return None


def _outputs(result: object) -> list[dict[str, Any]]:
    listed = cast("dict[str, Any]", result).get("outputs") if isinstance(result, dict) else None
    if not isinstance(listed, list):
        return []
    return [cast("dict[str, Any]", each) for each in cast("list[Any]", listed) if isinstance(each, dict)]


MOST_IN_BULK = 500


MOST_HOURS = 24 * 31


class FailureGroupOut(Reply):
    key: str = Field(description="Names the group in `POST /failures/requeue`.")
    cause: str = Field(description="The error, with numbers and ids replaced by signs.")
    example: str = Field(
        default="", description="What the newest of them says went wrong, in a line that a person can read."
    )
    sample_error: str
    type: str
    failure_class: str | None
    count: int
    first_at: datetime
    last_at: datetime
    statuses: dict[str, int] = Field(description="Of these jobs now.")
    sample_job_ids: tuple[str, ...] = Field(description="At most 5, newest first.")


class FailuresOut(Reply):
    since: datetime
    groups: tuple[FailureGroupOut, ...] = Field(description="Largest first, at most 100.")
    scanned: int
    truncated: bool = Field(description="There were more; only the newest were looked at.")


class BulkLineOut(Reply):
    job_id: str
    status: str | None = Field(description="From here on; null when it was refused.")
    refused: str | None = None


class BulkOut(Reply):
    jobs: tuple[BulkLineOut, ...] = Field(description="In the order in which they were asked for.")
    changed: int


class JobIdsIn(Request):
    """Jobs to cancel or to run once more, each answered by itself."""

    ids: tuple[Annotated[str, name(128)], ...] = Field(min_length=1, max_length=MOST_IN_BULK, fail_fast=True)


class RequeueIn(Request):
    """One group of failures, as `GET /failures` names it: its jobs that are dead letters run once more."""

    key: Annotated[str, Field(min_length=1, max_length=64)]
    since_hours: Annotated[int, Field(ge=1, le=MOST_HOURS)] = 24
    limit: Annotated[int, Field(ge=1, le=MOST_IN_BULK)] = MOST_IN_BULK


LONGEST_POLL = 60.0


MOST_MODELS = 64


_Token = Annotated[int, Field(ge=0, lt=2**63)]


_Saved = Annotated[
    float,
    Field(
        ge=0,
        le=MOST_SAVED.total_seconds(),
        description="The result had been made before and was found: the GPU seconds that this spared.",
    ),
]


_JobName = Annotated[str, Field(min_length=1), name(128)]


class RegisterIn(Request):
    """Sent once with the bootstrap token, or with one that may register workers by hand."""

    worker_id: Annotated[str, name(128)] | None = None
    pool: Annotated[str, name(128)] = DEFAULT_POOL
    instance_type: str | None = Field(default=None, max_length=128)
    incarnation: str = Field(
        min_length=8, max_length=64, description="Random, new with every start of the process."
    )


class RegisteredOut(Reply):
    worker_id: str
    token: str = Field(description="For every later request. It is shown once.")
    expires_at: datetime
    heartbeat_seconds: float
    claim_ttl_seconds: float


class AskIn(Request):
    types: tuple[str, ...] = Field(default=(), max_length=1000, fail_fast=True)
    most: dict[str, Annotated[int, Field(ge=1, le=MOST_AT_ONCE)]] = Field(default_factory=dict[str, int])
    beside: int = Field(default=0, ge=0, lt=MOST_AT_ONCE)
    begin: bool = False
    resume: bool = False
    models: tuple[Annotated[str, model_name()], ...] = Field(
        default=(), max_length=MOST_MODELS, fail_fast=True
    )
    wait_seconds: float = Field(default=0, ge=0, le=LONGEST_POLL)

    @staticmethod
    def of(ask: Ask, wait: timedelta) -> "AskIn":
        return AskIn(
            types=ask.types,
            most=dict(ask.most),
            beside=ask.beside,
            begin=ask.begin,
            resume=ask.resume,
            models=ask.models,
            wait_seconds=min(wait.total_seconds(), LONGEST_POLL),
        )

    def ask(self) -> Ask:
        return Ask(
            types=self.types,
            most=self.most,
            beside=self.beside,
            begin=self.begin,
            resume=self.resume,
            models=self.models,
        )


class ClaimOut(Reply):
    job_id: str
    token: int
    worker_id: str
    type: str
    payload: Any
    attempt: int
    timeout_seconds: float | None
    expires_at: datetime
    service_job_id: str | None = None
    model: str | None = None
    agent: str = Field(default="", description="For whom it runs.")

    @staticmethod
    def of(claim: Claim) -> "ClaimOut":
        return ClaimOut(
            job_id=claim.key.job_id,
            token=claim.key.token,
            worker_id=claim.worker_id,
            type=claim.type,
            payload=claim.payload,
            attempt=claim.attempt,
            timeout_seconds=None if claim.timeout is None else claim.timeout.total_seconds(),
            expires_at=claim.expires_at,
            service_job_id=claim.service_job_id,
            model=claim.model,
            agent=claim.agent,
        )

    def claim(self) -> Claim:
        return Claim(
            key=ClaimKey(JobId(self.job_id), self.token),
            worker_id=WorkerId(self.worker_id),
            type=self.type,
            payload=self.payload,
            attempt=self.attempt,
            timeout=None if self.timeout_seconds is None else timedelta(seconds=self.timeout_seconds),
            expires_at=self.expires_at,
            service_job_id=self.service_job_id,
            model=self.model,
            agent=self.agent,
        )


class ClaimsOut(Reply):
    claims: tuple[ClaimOut, ...]


class KeyIn(Request):
    job_id: _JobName
    token: _Token

    @staticmethod
    def of(key: ClaimKey) -> "KeyIn":
        return KeyIn(job_id=key.job_id, token=key.token)

    def key(self) -> ClaimKey:
        return ClaimKey(JobId(self.job_id), self.token)


class HeldClaimOut(Reply):
    job_id: str
    token: int

    def key(self) -> ClaimKey:
        return ClaimKey(JobId(self.job_id), self.token)


class HeldClaimsOut(Reply):
    """A claim that the worker does not work on is one whose answer never reached it: it gives that job back."""

    claims: tuple[HeldClaimOut, ...]


class StartIn(Request):
    """On `/jobs/{id}/start` the path names the job."""

    token: _Token


class StartManyIn(Request):
    claims: tuple[KeyIn, ...] = Field(min_length=1, max_length=MOST_AT_ONCE, fail_fast=True)


class RefusedOut(Reply):
    job_id: str
    token: int
    why: str

    @staticmethod
    def of(key: ClaimKey, why: str) -> "RefusedOut":
        return RefusedOut(job_id=key.job_id, token=key.token, why=why)


class StartedOut(Reply):
    refused: tuple[RefusedOut, ...] = ()

    def by_key(self) -> dict[ClaimKey, str]:
        return {ClaimKey(JobId(each.job_id), each.token): each.why for each in self.refused}


class ProgressIn(Request):
    token: _Token
    done: float = Field(ge=0, le=1)
    note: str | None = Field(default=None, max_length=1000)


class CompleteIn(Request):
    token: _Token
    result: Any = None
    saved_seconds: _Saved | None = None

    def saved(self) -> timedelta | None:
        return _span(self.saved_seconds)


class FailIn(Request):
    token: _Token
    kind: FailureClass = FailureClass.JOB_ERROR
    error: str = Field(default="", max_length=65_536)


class ReleaseIn(Request):
    token: _Token
    why: str = Field(default="", max_length=8_192)


class ServiceIn(Request):
    """Where a job is on an external service."""

    token: _Token
    external_id: str = Field(min_length=1, max_length=255, json_schema_extra={"pattern": "^[ -~]+$"})
    status: MarkStatus

    @staticmethod
    def of(token: int, mark: ServiceMark) -> "ServiceIn":
        return ServiceIn(token=token, external_id=mark.external_id, status=mark.status)

    def mark(self) -> ServiceMark:
        return ServiceMark(external_id=self.external_id, status=self.status)


class EndedOut(Reply):
    job_id: str
    status: str


class EndingIn(KeyIn):
    outcome: Literal["done", "failed", "given_back"]
    result: Any = None
    kind: FailureClass = FailureClass.JOB_ERROR
    error: str = Field(default="", max_length=65_536)
    saved_seconds: _Saved | None = None

    @staticmethod
    def of(ending: Ending) -> "EndingIn":  # pyright: ignore[reportIncompatibleMethodOverride]
        named: dict[str, Any] = {"job_id": ending.key.job_id, "token": ending.key.token}
        match ending:
            case Done():
                saved = None if ending.saved is None else ending.saved.total_seconds()
                return EndingIn(**named, outcome="done", result=ending.result, saved_seconds=saved)
            case Failed():
                return EndingIn(
                    **named, outcome="failed", kind=ending.failure.kind, error=ending.failure.error
                )
            case GivenBack():
                return EndingIn(**named, outcome="given_back", error=ending.why)

    def ending(self) -> Ending:
        match self.outcome:
            case "done":
                return Done(self.key(), self.result, _span(self.saved_seconds))
            case "failed":
                return Failed(self.key(), Failure(kind=self.kind, error=self.error))
            case "given_back":
                return GivenBack(self.key(), self.error)


class FinishIn(Request):
    endings: tuple[EndingIn, ...] = Field(min_length=1, max_length=MOST_AT_ONCE, fail_fast=True)
    then: AskIn | None = None


class FinishResultOut(Reply):
    job_id: str
    token: int
    status: str | None = None
    refused: str | None = None
    stale: bool = False


class FinishedOut(Reply):
    told: tuple[FinishResultOut, ...]
    claims: tuple[ClaimOut, ...] = ()

    @staticmethod
    def of(exchange: Exchange) -> "FinishedOut":
        return FinishedOut(
            told=tuple(
                FinishResultOut(
                    job_id=each.key.job_id,
                    token=each.key.token,
                    status=each.state,
                    refused=each.refused,
                    stale=each.stale,
                )
                for each in exchange.told
            ),
            claims=tuple(ClaimOut.of(claim) for claim in exchange.claims),
        )

    def exchange(self) -> Exchange:
        return Exchange(
            told=[
                Told(
                    key=ClaimKey(JobId(each.job_id), each.token),
                    state=None if each.status is None else JobState(each.status),
                    refused=each.refused,
                    stale=each.stale,
                )
                for each in self.told
            ],
            claims=[claim.claim() for claim in self.claims],
        )


class CheckpointIn(Request):
    token: _Token
    value: Any = None


class CheckpointOut(Reply):
    value: Any = None
