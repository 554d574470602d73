"""The things we speak of, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from herdsman.ids import DEFAULT_AGENT, DEFAULT_POOL, JobId, PoolId, WorkerId
from herdsman.states import JobStatus, Reason


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
class JobPolicy:
    """The rules every job lives by, unless it brings its own."""

    claim_ttl: timedelta = timedelta(seconds=30)
    cancel_grace: timedelta = timedelta(seconds=30)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_attempts: int = 3
    priority_step: timedelta = timedelta(minutes=1)
    model_wait: timedelta = timedelta(minutes=5)
    """How long a job waits for a worker that has its model loaded before any worker may take it."""
    model_dwell: timedelta = timedelta(minutes=1)
    """How long a worker keeps a model that it has just loaded, while there are jobs for it."""
    known_models_only: bool = False
    """Whether a job is refused whose model no pool names and no worker has loaded."""
    max_payload_bytes: int = 1_048_576
    max_result_bytes: int = 1_048_576
    job_retention: timedelta | None = timedelta(days=30)
    audit_retention: timedelta | None = timedelta(days=90)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """What a submitter asks for. Without a `job_id` one is made."""

    type: str
    payload: object = field(default_factory=dict[str, object])
    job_id: JobId | None = None
    idempotency_key: str | None = None
    agent: str = DEFAULT_AGENT
    pool: PoolId = DEFAULT_POOL
    priority: int = 0
    tags: tuple[str, ...] = ()
    run_at: datetime | None = None
    delay: timedelta | None = None
    timeout: timedelta | None = None
    max_attempts: int | None = None
    retry_base: timedelta | None = None
    retry_cap: timedelta | None = None
    model: str | None = None
    """What it runs with: a worker that has it loaded is preferred."""
    gpu_memory_mb: int | None = None
    """How much of a GPU it needs; None means all of it."""
    concurrency_key: str | None = None
    """Only so many jobs of one key run at a time; the policy says how many."""
    allow_cpu: bool = False
    """Where GPUs are short, the pool for CPUs may have it."""
    max_defer: timedelta | None = None
    """How long it may be put off before it is refused."""


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
class Job:
    job_id: JobId
    type: str
    agent: str
    pool: PoolId
    priority: int
    tags: tuple[str, ...]
    status: JobStatus
    reason: Reason
    payload: object
    result: object
    body_hash: str
    idempotency_key: str | None
    version: int
    attempts: int
    max_attempts: int
    interruptions: int
    worker_losses: int
    out_of_memory: int
    retry_base: timedelta | None
    retry_cap: timedelta | None
    timeout: timedelta | None
    place: int
    run_at: datetime
    owner_pool: PoolId | None
    worker_id: WorkerId | None
    last_worker_id: WorkerId | None
    claim_token: int
    claim_expires_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    deadline_at: datetime | None
    progress: float | None
    progress_note: str | None
    progress_at: datetime | None
    cancel_requested_at: datetime | None
    finished_at: datetime | None
    failure_class: FailureClass | None
    last_error: str | None
    service_job_id: str | None
    service_status: str | None
    service_submitted_at: datetime | None
    last_service_check: datetime | None
    created_at: datetime
    updated_at: datetime
    model: str | None = None
    gpu_memory_mb: int | None = None
    allow_cpu: bool = False
    concurrency_key: str | None = None
    admission: str | None = None
    """Why it was put off, or sent to another pool, when it was accepted."""
    saved_gpu: timedelta | None = None
    """The GPU time that was spared because its result was found, not made again; None where it was made."""


@dataclass(frozen=True, slots=True)
class Submitted:
    job_id: JobId
    created: bool
    """False when the same job had been submitted before; nothing was written then."""
    admission: str | None = None
    """Why it was put off, or sent to another pool than it asked for."""
    pool: PoolId | None = None
    """The pool that it was sent to instead."""
    run_at: datetime | None = None
    """Until when it was put off."""


@dataclass(frozen=True, slots=True)
class ClaimKey:
    """Names one claim. Every later word about the job carries it; an old one is refused."""

    job_id: JobId
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    key: ClaimKey
    worker_id: WorkerId
    type: str
    payload: object
    attempt: int
    timeout: timedelta | None
    expires_at: datetime
    service_job_id: str | None
    """Where an earlier claim of this job left it on an external service."""
    model: str | None = None
    agent: str = ""
    """For whom it runs; empty where the server is too old to say it."""
    place: int = 0
    """In the queue: the lowest is the most urgent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    kind: FailureClass
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    job_id: JobId
    claim_token: int
    attempt: int
    worker_id: WorkerId
    pool: PoolId
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    outcome: str | None
    reason: str | None
    failure_class: FailureClass | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    id: int
    ts: datetime
    event_type: str
    kind: str
    object_id: str
    seq: int
    from_status: str | None
    to_status: str
    reason: str
    actor: str
    details: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs a list or a requeue means; an empty field does not narrow it."""

    states: tuple[JobStatus, ...] = ()
    type: str | None = None
    agent: str | None = None
    pool: PoolId | None = None
    tag: str | None = None
    failure_class: FailureClass | None = None
    begins: str | None = None
    """How their ids begin."""
