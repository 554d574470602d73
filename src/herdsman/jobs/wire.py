"""Jobs, as people send and see them; those of a worker stand in `worker_wire`."""

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

from pydantic import AliasChoices, AwareDatetime, BeforeValidator, ConfigDict, Field

from herdsman.ids import DEFAULT_AGENT, DEFAULT_POOL, HIGHEST, LARGEST_MEMORY_MB, LOWEST, MAX_ATTEMPTS, MAX_TAGS
from herdsman.states import LEASE
from herdsman.wire import Duration, Reply, Request, Seconds, core_fields, lease_id, model_name, name, values_of

if TYPE_CHECKING:
    from herdsman.jobs.model import AuditEntry, NewJob

_SAVED = "GPU time that was spared because its result was found at the service; null where it was made."
_SUM = re.compile(r"[0-9a-f]{64}", re.ASCII)
MOST_IN_BULK = 500
MOST_HOURS = 24 * 31


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

    def new_job(self, agent: str | None = None, *, only: str | None = None) -> "NewJob":
        """`agent` is the one of the caller, for a body that names none; `only`, whatever the body says."""
        from herdsman.jobs.model import NewJob  # noqa: PLC0415  (only a server makes one)

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
        bool, BeforeValidator(lambda value: value is not None if isinstance(value, datetime | None) else value)
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
    service_job_id: str | None = Field(default=None, description="Where it is, or was made, on an external service.")
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
    def of(cls, value: "AuditEntry") -> Self:
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

    ids: tuple[Annotated[str, name("job_id")], ...] = Field(min_length=1, max_length=MOST_IN_BULK, fail_fast=True)


class RequeueIn(Request):
    """One group of failures, as `GET /failures` names it: its jobs that are dead letters run once more."""

    key: Annotated[str, Field(min_length=1, max_length=64)]
    since_hours: Annotated[int, Field(ge=1, le=MOST_HOURS)] = 24
    limit: Annotated[int, Field(ge=1, le=MOST_IN_BULK)] = MOST_IN_BULK
