"""Is a submission one that we can keep? Every refusal names the field, the value and the rule."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple

from herdsman.errors import InvalidRequest
from herdsman.ids import HIGHEST, LARGEST_MEMORY_MB, LOWEST, MAX_ATTEMPTS, MAX_TAGS, JobId, WorkerId, check_name
from herdsman.jobs.model import Failure, FailureClass, JobPolicy, NewJob, RetryPolicy
from herdsman.json_text import encode, fingerprint
from herdsman.states import JobStatus, Reason

LONGEST_WAIT = timedelta(days=365)
LONGEST_RUN = timedelta(days=30)
_NAMES = ("job_id", "idempotency_key")
# Those of later versions count only where they are used: a job that was sent before an upgrade stays the same job.
_FIRST_VERSION = (
    *("type", "payload", "agent", "pool", "priority", "tags", "run_at", "delay", "timeout"),
    *("max_attempts", "retry_base", "retry_cap"),
)
_LATER_VERSIONS = tuple(
    (each.name, each.default) for each in fields(NewJob) if each.name not in (*_NAMES, *_FIRST_VERSION)
)


def check(new: NewJob, policy: JobPolicy) -> str:
    """The payload as JSON text, once everything about the submission has been found in order."""
    for field in ("type", "agent", "pool", "job_id", "idempotency_key", "concurrency_key", "model"):
        if (value := getattr(new, field)) is not None:
            check_name(field, value, slashes=field == "model")
    if len(new.tags) > MAX_TAGS:
        raise InvalidRequest(f"{len(new.tags)} tags were given, the limit is {MAX_TAGS}")
    for tag in new.tags:
        check_name("tag", tag)
    for field, (low, high) in _NUMBERS.items():
        value = getattr(new, field)
        if value is not None and (type(value) is not int or not low <= value <= high):
            raise InvalidRequest(f"{field} is {value!r}: it must be a whole number from {low} to {high}")
    if new.run_at is not None and new.delay is not None:
        raise InvalidRequest("run_at and delay were both given: use one of them")
    if new.run_at is not None and new.run_at.tzinfo is None:
        raise InvalidRequest(f"run_at is {new.run_at.isoformat()}: it must say its time zone")
    try:
        _ = new.run_at and new.run_at.astimezone(UTC)
    except OverflowError as error:
        assert new.run_at is not None
        said = f"run_at is {new.run_at.isoformat()}, which lies outside the calendar in UTC"
        raise InvalidRequest(said) from error
    for field, longest in _SPANS.items():
        span = getattr(new, field)
        if span is not None and not timedelta(0) < span <= longest:
            raise InvalidRequest(f"{field} is {span}: it must be more than 0 and at most {longest}")
    return encode(new.payload, what="payload", limit=policy.max_payload_bytes)


_NUMBERS = {"priority": (LOWEST, HIGHEST), "max_attempts": (1, MAX_ATTEMPTS), "gpu_memory_mb": (1, LARGEST_MEMORY_MB)}
_SPANS = {**dict.fromkeys(("delay", "max_defer", "retry_base", "retry_cap"), LONGEST_WAIT), "timeout": LONGEST_RUN}


def body_hash(new: NewJob) -> str:
    """Of all that was asked for; the names by which a submission is recognised are left out."""
    body = {name: getattr(new, name) for name in _FIRST_VERSION}
    for name, usual in _LATER_VERSIONS:
        if (value := getattr(new, name)) != usual:
            body[name] = value
    return fingerprint(body)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def place(due: datetime, priority: int, step: timedelta) -> int:
    """The job with the lowest place is claimed first. In microseconds."""
    return (due - _EPOCH - priority * step) // _MICROSECOND


def longest_overtaking(priority: int, step: timedelta) -> timedelta:
    """How long after a job became due another one may still become due and go first."""
    return (HIGHEST - priority) * step


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


class Holding(NamedTuple):
    """A held job, as far as the end of its claim needs to know it: columns of its row."""

    job_id: JobId
    claim_token: int
    attempts: int
    interruptions: int
    worker_losses: int
    out_of_memory: int
    max_attempts: int
    retry_base_s: float | None
    retry_cap_s: float | None
    priority: int
    place: int
    run_at: datetime
    claim_expires_at: datetime
    cancel_requested_at: datetime | None
    status: str
    worker_id: WorkerId | None
    claimed_at: datetime
    slot: int


@dataclass(frozen=True, slots=True)
class Ending:
    """What a claim ends in."""

    status: JobStatus
    reason: Reason
    job: Holding
    """With its counts, its place and its time from here on."""
    failure: Failure


def end_of(held: Holding, failure: Failure, now: datetime, policy: JobPolicy) -> Ending:
    """`cancelled` where somebody asked for that; otherwise the next attempt, or the reason why there is none."""
    kind, usual = failure.kind, policy.retry
    if (counted := _COUNTED.get(kind)) is not None:
        held = held._replace(**{counted: getattr(held, counted) + 1})
    if held.cancel_requested_at is not None:
        return Ending(JobStatus.CANCELLED, Reason.CANCELLED, held, failure)
    limits = {
        FailureClass.USER_ERROR: (True, Reason.USER_ERROR),
        FailureClass.INTERRUPTED: (held.interruptions >= usual.max_interruptions, Reason.INTERRUPTED_TOO_OFTEN),
        FailureClass.WORKER_LOST: (held.worker_losses >= usual.max_worker_losses, Reason.KILLS_WORKERS),
        FailureClass.OUT_OF_MEMORY: (held.out_of_memory >= usual.max_out_of_memory, Reason.OUT_OF_MEMORY_AGAIN),
    }
    over, reason = limits.get(kind, (False, Reason.ATTEMPTS_EXHAUSTED))
    spent = held.attempts - held.interruptions
    if over or spent >= held.max_attempts:
        return Ending(JobStatus.DEAD_LETTER, reason if over else Reason.ATTEMPTS_EXHAUSTED, held, failure)
    state, due = JobStatus.PENDING, now
    if kind is FailureClass.INTERRUPTED:  # not the job's fault: it keeps its place
        return Ending(state, REASONS[kind], held, failure)
    # One that may have killed its worker waits its turn like a new one, never at the head (J8).
    if kind is not FailureClass.WORKER_LOST:
        # The usual policy with what the job brought itself; a base over the usual cap raises the cap.
        base = timedelta(seconds=held.retry_base_s) if held.retry_base_s else usual.base
        cap = timedelta(seconds=held.retry_cap_s) if held.retry_cap_s else max(base, usual.cap)
        state, due = JobStatus.FAILED, now + backoff(held.job_id, spent, replace(usual, base=base, cap=cap))
    queued = held._replace(run_at=due, place=place(due, held.priority, policy.priority_step))
    return Ending(state, REASONS[kind], queued, failure)


def not_begun(held: Holding, failure: Failure) -> Ending:
    """A claim that was taken ahead: the job keeps its place, and the attempt was none (J14)."""
    if held.cancel_requested_at is not None:
        return Ending(JobStatus.CANCELLED, Reason.CANCELLED, held, failure)
    return Ending(JobStatus.PENDING, Reason.NOT_BEGUN, held._replace(attempts=held.attempts - 1), failure)


def behind_the_first(claims: Sequence[Holding]) -> list[Holding]:
    """Of all that a worker holds, what it cannot have begun yet: it works off one after the other what it took ahead.

    What has begun together, as a batch does, was written as running. Where nothing was, the first may have begun.
    """
    ordered = sorted(claims, key=lambda each: (each.claimed_at, each.slot))
    running = [number for number, each in enumerate(ordered) if each.status == JobStatus.RUNNING]
    first = running[-1] if running else 0
    return [each for each in ordered[first + 1 :] if each.status == JobStatus.CLAIMED]


_COUNTED = {
    FailureClass.INTERRUPTED: "interruptions",
    FailureClass.WORKER_LOST: "worker_losses",
    FailureClass.OUT_OF_MEMORY: "out_of_memory",
}


def overdue_failure(held: Holding, now: datetime, *, excused_before: datetime | None = None) -> Failure:
    """Why the sweep ends a claim: a silent worker, or one that beats and does not stop the job.

    A claim that ran out before `excused_before` ran out while no heartbeat could be written: nobody is to blame.
    """
    if excused_before is not None and held.claim_expires_at < excused_before:
        said = "the worker was not heard again after heartbeats could not be written"
        return Failure(kind=FailureClass.INTERRUPTED, error=said)
    if held.claim_expires_at < now:
        return Failure(kind=FailureClass.WORKER_LOST, error="the worker fell silent while it held the job")
    return Failure(kind=FailureClass.TIMEOUT, error="the job ran on after it should have ended")


REASONS = {
    FailureClass.USER_ERROR: Reason.USER_ERROR,
    FailureClass.JOB_ERROR: Reason.JOB_ERROR,
    FailureClass.OUT_OF_MEMORY: Reason.OUT_OF_MEMORY,
    FailureClass.INFRASTRUCTURE: Reason.INFRASTRUCTURE,
    FailureClass.INTERRUPTED: Reason.RELEASED,
    FailureClass.TIMEOUT: Reason.TIMEOUT,
    FailureClass.WORKER_LOST: Reason.CLAIM_EXPIRED,
}


@dataclass(frozen=True, slots=True)
class Head:
    """The first of the jobs that wait for one model, or for none."""

    model: str | None
    place: int
    overdue: bool = False
    """It has waited for a worker with its model as long as it has to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a worker has loaded, and what others of its pool have."""

    here: Collection[str] = ()
    elsewhere: Collection[str] = ()
    settled: bool = True
    """Its last change is long enough ago for another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSelector:
    """The jobs that a free worker may take. J13: while one of them waits, the worker is given one.

    `jobs/claim_sql.py` puts it into SQL, so that no read of the queue ends among jobs that cannot be taken.
    """

    types: Collection[str] = ()
    """Those that the worker runs; empty when it runs any."""
    not_types: Collection[str] = ()
    """Paused."""
    only_agents: Collection[str] | None = None
    """None where every agent may run jobs."""
    not_agents: Collection[str] = ()
    """They run as many jobs as they may."""
    not_keys: Collection[str] = ()
    """Of these concurrency keys as many jobs run as may."""
    room_mb: int | None = None
    """The worker has only so much of a GPU; None when nothing narrows it."""
    no_gpu: bool = False
    """The worker has none: what names the GPU memory that it needs must allow a CPU."""
    loaded: Loaded | None = None
    """None where models do not matter."""
    overdue_before: datetime | None = None
    """Who has waited since then waits for a worker with its model no longer."""


def best(heads: Sequence[Head], loaded: Loaded) -> Head | None:
    """The one that the worker takes."""
    suits = [head for head in heads if head.model is None or head.model in loaded.here]
    overdue = [head for head in heads if head.overdue]
    if loaded.settled:
        suits += overdue
    new = [head for head in heads if head.model not in loaded.elsewhere]
    return min(suits or [*new, *overdue], key=lambda head: head.place, default=None)


def shares(agents: Sequence[str], count: int) -> Mapping[str, int]:
    """How many of `count` jobs each agent gets, when they take turns in this order."""
    each, more = divmod(count, len(agents))
    dealt = {agent: each + (index < more) for index, agent in enumerate(agents)}
    return {agent: number for agent, number in dealt.items() if number}


# The names that people who work in SQL know the states of a job by, in the view `tasks`. `Error` waits for its retry
# time; a task that will not be tried again is `Failed`.
TASK_STATUS: Mapping[JobStatus, str] = {
    JobStatus.SCHEDULED: "Queued",
    JobStatus.PENDING: "Queued",
    JobStatus.CLAIMED: "In Progress",
    JobStatus.RUNNING: "In Progress",
    JobStatus.DONE: "Complete",
    JobStatus.FAILED: "Error",
    JobStatus.DEAD_LETTER: "Failed",
    JobStatus.CANCELLED: "Cancelled",
}
STATUS_NAMES: Mapping[str, str] = {**{name: name for name in TASK_STATUS.values()}, "Running": "In Progress"}
"""What a filter takes; `Running` is another name, which nothing ever shows."""


def states_of(name: str) -> tuple[JobStatus, ...]:
    """The states that a status of the view `tasks` stands for."""
    if name not in STATUS_NAMES:
        raise InvalidRequest(f"{name!r} is no status of a task: choose from {', '.join(STATUS_NAMES)}")
    return tuple(state for state, status in TASK_STATUS.items() if status == STATUS_NAMES[name])
