"""Jobs, as people send and see them, and as a worker claims, keeps and finishes them."""

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AliasChoices, AliasPath, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from herdsman.ids import DEFAULT_AGENT, DEFAULT_POOL, JobId
from herdsman.jobs.model import HIGHEST, LOWEST, AuditEntry, Claim, ClaimKey, Failure, FailureClass, NewJob
from herdsman.jobs.protocol import (
    MOST_AT_ONCE,
    MOST_SAVED,
    ClaimRequest,
    Done,
    Ending,
    Failed,
    FinishAndClaim,
    FinishResult,
    GivenBack,
    MarkStatus,
    ServiceMark,
)
from herdsman.jobs.rules import LARGEST_MEMORY_MB, MAX_ATTEMPTS, MAX_TAGS
from herdsman.states import LEASE, JobStatus
from herdsman.wire import (
    Duration,
    Reply,
    Request,
    Seconds,
    core_fields,
    lease_id,
    model_name,
    name,
    span,
    values_of,
)

_SAVED = "GPU time that was spared because its result was found at the service; null where it was made."
_SUM = re.compile(r"[0-9a-f]{64}", re.ASCII)
MOST_IN_BULK = 500
MOST_HOURS = 24 * 31
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
_JobName = Annotated[str, Field(min_length=1), name("job_id")]


class JobIn(Request):
    """A job to run. Sent again with the same id and the same body it is the same job."""

    type: Annotated[str, name("type")]
    payload: Any = Field(default_factory=dict[str, Any], description="Any JSON; it is data for the handler.")
    job_id: Annotated[str, name("job_id")] | None = None
    idempotency_key: Annotated[str, name("idempotency_key")] | None = None
    agent: Annotated[str, name("agent")] | None = Field(default=None, description="For whom it runs.")
    pool: Annotated[str, name("pool")] = DEFAULT_POOL
    priority: int = Field(default=0, ge=LOWEST, le=HIGHEST)
    tags: tuple[Annotated[str, name("tag")], ...] = Field(default=(), max_length=MAX_TAGS, fail_fast=True)
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
    concurrency_key: Annotated[str, name("concurrency_key")] | None = Field(
        default=None, description="Only so many jobs of one key run at a time."
    )
    allow_cpu: bool = Field(default=False, description="Where GPUs are short, it may run without one.")
    max_defer_seconds: Duration | None = Field(
        default=None, description="How long it may be put off before it is refused."
    )

    def new_job(self, agent: str | None = None, *, only: str | None = None) -> NewJob:
        """`agent` is the one of the caller, for a body that names none; `only`, whatever the body says."""
        return NewJob(agent=only or self.agent or agent or DEFAULT_AGENT, **core_fields(self, "agent"))


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


class SubmittedManyOut(Reply):
    jobs: tuple[SubmittedOut, ...]


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
    timeout_seconds: Seconds | None
    # The job has the instant of the request, or none.
    cancel_requested: Annotated[
        bool,
        BeforeValidator(lambda value: value is not None if isinstance(value, datetime | None) else value),
    ] = Field(validation_alias=AliasChoices("cancel_requested", "cancel_requested_at"))
    version: int = Field(description="Rises with every change of status.")
    model: str | None = None
    gpu_memory_mb: int | None = None
    concurrency_key: str | None = None
    admission: str | None = Field(default=None, description="Why it was put off, or sent to another pool.")


class JobDetail(JobOut):
    """One job, with what was asked for."""

    payload: Any
    idempotency_key: str | None
    service_job_id: str | None = Field(
        default=None, description="Where it is, or was made, on an external service."
    )
    service_status: str | None = None
    saved_gpu_seconds: Seconds | None = Field(default=None, description=_SAVED)


class JobsOut(Reply):
    jobs: tuple[JobOut, ...]
    next: str | None = Field(description="Send it as `after` for the page that follows; null on the last.")


class ResultOut(Reply):
    job_id: str
    status: str
    result: Any = None
    failure_class: str | None = None
    last_error: str | None = None
    saved_gpu_seconds: Seconds | None = Field(default=None, description=_SAVED)


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


class AttemptsOut(Reply):
    attempts: tuple[AttemptOut, ...]


class EventOut(Reply):
    """One move of a job, a worker, a pool or a lease, as the audit has it."""

    # Made by `of` alone, which hides the tokens of leases.
    model_config = ConfigDict(from_attributes=False)

    id: int | None = None
    ts: datetime
    event: str = Field(validation_alias=AliasChoices("event", "event_type"))
    kind: str
    object_id: str
    seq: int
    from_status: str | None
    to_status: str
    reason: str
    actor: str

    @classmethod
    def of(cls, value: AuditEntry) -> Self:
        shown = lease_id(value.object_id) if value.kind == LEASE.kind else value.object_id
        return cls.model_validate({**values_of(value), "object_id": shown})


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


def sha256_of(result: object, name: str) -> str | None:
    """The sum that the result tells for a file; None where it tells none. Handlers may return anything."""
    outputs = cast("dict[str, Any]", result).get("outputs") if isinstance(result, dict) else None
    for output in cast("list[Any]", outputs) if isinstance(outputs, list) else []:
        if isinstance(output, dict) and (found := cast("dict[str, Any]", output)).get("name") == name:
            told = found.get("sha256")
            return told if isinstance(told, str) and _SUM.fullmatch(told) else None
    return None


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

    ids: tuple[Annotated[str, name("job_id")], ...] = Field(
        min_length=1, max_length=MOST_IN_BULK, fail_fast=True
    )


class RequeueIn(Request):
    """One group of failures, as `GET /failures` names it: its jobs that are dead letters run once more."""

    key: Annotated[str, Field(min_length=1, max_length=64)]
    since_hours: Annotated[int, Field(ge=1, le=MOST_HOURS)] = 24
    limit: Annotated[int, Field(ge=1, le=MOST_IN_BULK)] = MOST_IN_BULK


# What a worker says. Its token tells which worker it is.


class RegisterIn(Request):
    """Sent once with the bootstrap token, or with one that may register workers by hand."""

    worker_id: Annotated[str, name("worker_id")] | None = None
    pool: Annotated[str, name("pool")] = DEFAULT_POOL
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


class ClaimRequestIn(Request):
    types: tuple[str, ...] = Field(default=(), max_length=1000, fail_fast=True)
    most: dict[str, Annotated[int, Field(ge=1, le=MOST_AT_ONCE)]] = Field(default_factory=dict[str, int])
    beside: int = Field(default=0, ge=0, lt=MOST_AT_ONCE)
    begin: bool = False
    resume: bool = False
    models: tuple[Annotated[str, model_name()], ...] = Field(
        default=(), max_length=MOST_MODELS, fail_fast=True
    )
    wait_seconds: float = Field(default=0, ge=0, le=LONGEST_POLL)

    @classmethod
    def of(cls, ask: ClaimRequest, wait: timedelta) -> Self:
        found = cls.model_validate(ask, from_attributes=True)
        seconds = min(max(0.0, wait.total_seconds()), LONGEST_POLL)
        return found.model_copy(update={"wait_seconds": seconds})

    def ask(self) -> ClaimRequest:
        return ClaimRequest(**core_fields(self, "wait_seconds"))


class _Keyed(BaseModel):
    """A claim, by its job and its token."""

    job_id: str
    token: int

    def key(self) -> ClaimKey:
        return ClaimKey(JobId(self.job_id), self.token)


class KeyOut(Reply, _Keyed):
    """A claim, by its job and its token."""

    job_id: str = Field(validation_alias=AliasChoices("job_id", AliasPath("key", "job_id")))
    token: int = Field(validation_alias=AliasChoices("token", AliasPath("key", "token")))


class ClaimOut(KeyOut):
    worker_id: str
    type: str
    payload: Any
    attempt: int
    timeout_seconds: Seconds | None
    expires_at: datetime
    service_job_id: str | None = None
    model: str | None = None
    agent: str = Field(default="", description="For whom it runs.")

    def claim(self) -> Claim:
        return Claim(key=self.key(), **core_fields(self, "job_id", "token"))


class ClaimsOut(Reply):
    claims: tuple[ClaimOut, ...]


class KeyIn(Request, _Keyed):
    job_id: _JobName
    token: _Token

    @classmethod
    def of(cls, key: ClaimKey) -> Self:
        return cls.model_validate(key, from_attributes=True)


class HeldClaimOut(KeyOut):
    pass


class HeldClaimsOut(Reply):
    """A claim that the worker does not work on is one whose answer never reached it: it gives that job back."""

    claims: tuple[HeldClaimOut, ...]


class StartIn(Request):
    """On `/jobs/{id}/start` the path names the job."""

    token: _Token


class StartManyIn(Request):
    claims: tuple[KeyIn, ...] = Field(min_length=1, max_length=MOST_AT_ONCE, fail_fast=True)


class RefusedOut(KeyOut):
    why: str

    @classmethod
    def of(cls, value: ClaimKey, why: str) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]  (a key has no reason)
        return cls(job_id=value.job_id, token=value.token, why=why)


class StartedOut(Reply):
    refused: tuple[RefusedOut, ...] = ()

    def by_key(self) -> dict[ClaimKey, str]:
        return {each.key(): each.why for each in self.refused}


class ProgressIn(Request):
    token: _Token
    done: float = Field(ge=0, le=1)
    note: str | None = Field(default=None, max_length=1000)


class CompleteIn(Request):
    token: _Token
    result: Any = None
    saved_seconds: _Saved | None = None

    def saved(self) -> timedelta | None:
        return span(self.saved_seconds)


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

    @classmethod
    def of(cls, token: int, mark: ServiceMark) -> Self:
        return cls(token=token, external_id=mark.external_id, status=mark.status)

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

    @classmethod
    def of(cls, ending: Ending) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        named: dict[str, Any] = {"job_id": ending.key.job_id, "token": ending.key.token}
        match ending:
            case Done():
                saved = None if ending.saved is None else ending.saved.total_seconds()
                return cls(**named, outcome="done", result=ending.result, saved_seconds=saved)
            case Failed():
                return cls(**named, outcome="failed", kind=ending.failure.kind, error=ending.failure.error)
            case GivenBack():
                return cls(**named, outcome="given_back", error=ending.why)

    def ending(self) -> Ending:
        match self.outcome:
            case "done":
                return Done(self.key(), self.result, span(self.saved_seconds))
            case "failed":
                return Failed(self.key(), Failure(kind=self.kind, error=self.error))
            case "given_back":
                return GivenBack(self.key(), self.error)


class FinishIn(Request):
    endings: tuple[EndingIn, ...] = Field(min_length=1, max_length=MOST_AT_ONCE, fail_fast=True)
    then: ClaimRequestIn | None = None


class FinishResultOut(KeyOut):
    status: str | None = None
    refused: str | None = None
    stale: bool = False


class FinishedOut(Reply):
    told: tuple[FinishResultOut, ...]
    claims: tuple[ClaimOut, ...] = ()

    def exchange(self) -> FinishAndClaim:
        return FinishAndClaim(
            told=[
                FinishResult(
                    key=each.key(),
                    status=None if each.status is None else JobStatus(each.status),
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
