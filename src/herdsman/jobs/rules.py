"""Is a submission one that we can keep? Every refusal names the field, the value and the rule."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Protocol, assert_never

from herdsman.errors import InvalidRequest
from herdsman.jobs.model import (
    HIGHEST,
    LOWEST,
    ClaimKey,
    Failure,
    FailureClass,
    JobPolicy,
    NewJob,
    RetryPolicy,
    place,
)
from herdsman.json_text import encode, fingerprint
from herdsman.states import JobState, Reason

MAX_TAGS = 20
MAX_ATTEMPTS = 100
LONGEST_WAIT = timedelta(days=365)
LONGEST_RUN = timedelta(days=30)
# Ids travel in URLs, file names, stream fields and logs: nothing in them may need escaping.
_NAMES = ("job_id", "idempotency_key")
# Those of later versions count only where they are used: a job that was sent before an upgrade stays the same job.
_LATER = ("model", "gpu_memory_mb", "concurrency_key", "allow_cpu", "max_defer")
_DEFAULTS = {each.name: each.default for each in fields(NewJob) if each.name in _LATER}
_BODY = tuple(each.name for each in fields(NewJob) if each.name not in _NAMES)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]*", re.ASCII)
MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+/-]*", re.ASCII)
LONGEST: Mapping[str, int] = {
    "agent": 255,
    "concurrency_key": 128,
    "idempotency_key": 255,
    "job_id": 128,
    "model": 255,
    "node": 128,
    "pool": 128,
    "pool_id": 123,
    "tag": 64,
    "token": 64,
    "type": 64,
    "variant": 64,
    "worker_id": 128,
}
"""Characters of a name, by what it names. `pool_id` is a new pool: with the word that a hold has before it, the audit
takes no more."""
LARGEST_MEMORY_MB = 16_777_216


def check(new: NewJob, policy: JobPolicy) -> str:
    """The payload as JSON text, once everything about the submission has been found in order."""
    for field in ("type", "agent", "pool", "job_id", "idempotency_key", "concurrency_key"):
        if (value := getattr(new, field)) is not None:
            check_name(field, value)
    if new.model is not None:
        check_model("model", new.model)
    if len(new.tags) > MAX_TAGS:
        raise InvalidRequest(f"{len(new.tags)} tags were given, the limit is {MAX_TAGS}")
    for tag in new.tags:
        check_name("tag", tag)
    for field, value, low, high in (
        ("priority", new.priority, LOWEST, HIGHEST),
        ("max_attempts", new.max_attempts, 1, MAX_ATTEMPTS),
        ("gpu_memory_mb", new.gpu_memory_mb, 1, LARGEST_MEMORY_MB),
    ):
        if value is not None and (type(value) is not int or not low <= value <= high):
            raise InvalidRequest(f"{field} is {value!r}: it must be a whole number from {low} to {high}")
    _check_times(new)
    return encode(new.payload, what="payload", limit=policy.max_payload_bytes)


def body_hash(new: NewJob) -> str:
    """Of all that was asked for; the names by which a submission is recognised are left out."""
    body = {field: getattr(new, field) for field in _BODY}
    return fingerprint(
        {
            field: value
            for field, value in body.items()
            if not (field in _DEFAULTS and value == _DEFAULTS[field])
        }
    )


def check_model(field: str, value: str) -> None:
    """The name of a model or an adapter: as other names, with slashes."""
    if len(value) > LONGEST["model"]:
        raise InvalidRequest(f"{field} has {len(value)} characters, the limit is {LONGEST['model']}")
    if not MODEL.fullmatch(value):
        raise InvalidRequest(
            f"{field} is {value!r}: it must begin with a letter or digit and hold only letters, digits and . _ : @ + / -"
        )


def check_name(field: str, value: str, longest: int | None = None) -> None:
    """`longest` is for what has no limit in `LONGEST`, or another one."""
    longest = LONGEST[field] if longest is None else longest
    if len(value) > longest:
        raise InvalidRequest(f"{field} has {len(value)} characters, the limit is {longest}")
    if not NAME.fullmatch(value):
        raise InvalidRequest(
            f"{field} is {value!r}: it must begin with a letter or digit and hold only letters, digits and . _ : @ + -"
        )


def _check_times(new: NewJob) -> None:
    if new.run_at is not None and new.delay is not None:
        raise InvalidRequest("run_at and delay were both given: use one of them")
    if new.run_at is not None:
        if new.run_at.tzinfo is None:
            raise InvalidRequest(f"run_at is {new.run_at.isoformat()}: it must say its time zone")
        try:
            new.run_at.astimezone(UTC)
        except OverflowError as error:
            raise InvalidRequest(
                f"run_at is {new.run_at.isoformat()}, which lies outside the calendar in UTC"
            ) from error
    longest: Mapping[str, tuple[timedelta | None, timedelta]] = {
        "delay": (new.delay, LONGEST_WAIT),
        "max_defer": (new.max_defer, LONGEST_WAIT),
        "timeout": (new.timeout, LONGEST_RUN),
        "retry_base": (new.retry_base, LONGEST_WAIT),
        "retry_cap": (new.retry_cap, LONGEST_WAIT),
    }
    for field, (value, limit) in longest.items():
        if value is not None and not timedelta(0) < value <= limit:
            raise InvalidRequest(f"{field} is {value}: it must be more than 0 and at most {limit}")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A held job, as far as the end of its claim needs to know it."""

    key: ClaimKey
    tally: Tally
    max_attempts: int
    retry_base: timedelta | None
    retry_cap: timedelta | None
    priority: int
    place: int
    run_at: datetime
    expires_at: datetime
    cancel_requested: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a claim ends in."""

    state: JobState
    reason: Reason
    run_at: datetime
    place: int
    tally: Tally
    failure: Failure | None


def end_of(held: Holding, failure: Failure, now: datetime, policy: JobPolicy) -> Ending:
    tally = count(held.tally, failure.kind)
    ending = Ending(
        state=JobState.CANCELLED,
        reason=Reason.CANCELLED,
        run_at=held.run_at,
        place=held.place,
        tally=tally,
        failure=failure,
    )
    if held.cancel_requested:
        return ending
    retry = own_policy(held, policy.retry)
    outcome = after_failure(
        failure.kind, tally, max_attempts=held.max_attempts, policy=retry, job_id=held.key.job_id
    )
    match outcome:
        case GiveUp(reason):
            return replace(ending, state=JobState.DEAD_LETTER, reason=reason)
        case RunAgain():
            return _run_again(ending, held, now, policy)
        case RetryAfter(delay):
            waiting = replace(ending, state=JobState.FAILED, reason=REASONS[failure.kind])
            return _queued_at(waiting, now + delay, held.priority, policy)
        case _:
            assert_never(outcome)


def own_policy(held: Holding, usual: RetryPolicy) -> RetryPolicy:
    """The usual policy with what the job brought itself; a base over the usual cap raises the cap."""
    base = held.retry_base or usual.base
    return replace(usual, base=base, cap=held.retry_cap or max(base, usual.cap))


def overdue_failure(held: Holding, now: datetime, *, excused_before: datetime | None = None) -> Failure:
    """Why the sweep ends a claim: a silent worker, or one that beats and does not stop the job.

    A claim that ran out before `excused_before` ran out while no heartbeat could be written: nobody is to blame.
    """
    if excused_before is not None and held.expires_at < excused_before:
        said = "the worker was not heard again after heartbeats could not be written"
        return Failure(kind=FailureClass.INTERRUPTED, error=said)
    if held.expires_at < now:
        return Failure(kind=FailureClass.WORKER_LOST, error="the worker fell silent while it held the job")
    return Failure(kind=FailureClass.TIMEOUT, error="the job ran on after it should have ended")


def count(tally: Tally, kind: FailureClass) -> Tally:
    match kind:
        case FailureClass.INTERRUPTED:
            return replace(tally, interruptions=tally.interruptions + 1)
        case FailureClass.WORKER_LOST:
            return replace(tally, worker_losses=tally.worker_losses + 1)
        case FailureClass.OUT_OF_MEMORY:
            return replace(tally, out_of_memory=tally.out_of_memory + 1)
        case _:
            return tally


def _run_again(ending: Ending, held: Holding, now: datetime, policy: JobPolicy) -> Ending:
    assert ending.failure is not None
    waiting = replace(ending, state=JobState.PENDING, reason=REASONS[ending.failure.kind])
    if ending.failure.kind is FailureClass.INTERRUPTED:
        return waiting  # not the job's fault: it keeps its place
    # It may have killed the worker: it waits its turn like a new one, never at the head (J8).
    return _queued_at(waiting, now, held.priority, policy)


def _queued_at(ending: Ending, due: datetime, priority: int, policy: JobPolicy) -> Ending:
    return replace(ending, run_at=due, place=place(due, priority, policy.priority_step))


REASONS = {
    FailureClass.USER_ERROR: Reason.USER_ERROR,
    FailureClass.JOB_ERROR: Reason.JOB_ERROR,
    FailureClass.OUT_OF_MEMORY: Reason.OUT_OF_MEMORY,
    FailureClass.INFRASTRUCTURE: Reason.INFRASTRUCTURE,
    FailureClass.INTERRUPTED: Reason.RELEASED,
    FailureClass.TIMEOUT: Reason.TIMEOUT,
    FailureClass.WORKER_LOST: Reason.CLAIM_EXPIRED,
}


class WaitingJob(Protocol):
    """What of a job decides who may take it."""

    @property
    def type(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def concurrency_key(self) -> str | None: ...
    @property
    def gpu_memory_mb(self) -> int | None: ...
    @property
    def allow_cpu(self) -> bool | int: ...
    @property
    def run_at(self) -> datetime: ...


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

    `accepts` is the rule; `jobs/claim_sql.py` says the same in SQL, so that no look at the queue ends among jobs that
    cannot be taken.
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

    def accepts(self, job: WaitingJob) -> bool:
        return (
            (not self.types or job.type in self.types)
            and job.type not in self.not_types
            and (self.only_agents is None or job.agent in self.only_agents)
            and job.agent not in self.not_agents
            and job.concurrency_key not in self.not_keys
            and (not self.no_gpu or job.gpu_memory_mb is None or bool(job.allow_cpu))
            and (
                self.room_mb is None or (job.gpu_memory_mb is not None and job.gpu_memory_mb <= self.room_mb)
            )
            and (
                self.loaded is None
                or job.model is None
                or job.model in self.loaded.here
                or job.model not in self.loaded.elsewhere
                or (self.overdue_before is not None and job.run_at <= self.overdue_before)
            )
        )


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


class TaskStatus(StrEnum):
    """The names that people who work in SQL know the states of a job by, in the view `tasks`."""

    QUEUED = "Queued"
    IN_PROGRESS = "In Progress"
    COMPLETE = "Complete"
    ERROR = "Error"
    """Waiting for its retry time; a task that will not be tried again is `Failed`."""
    FAILED = "Failed"
    CANCELLED = "Cancelled"


TASK_STATUS: Mapping[JobState, TaskStatus] = {
    JobState.SCHEDULED: TaskStatus.QUEUED,
    JobState.PENDING: TaskStatus.QUEUED,
    JobState.CLAIMED: TaskStatus.IN_PROGRESS,
    JobState.RUNNING: TaskStatus.IN_PROGRESS,
    JobState.DONE: TaskStatus.COMPLETE,
    JobState.FAILED: TaskStatus.ERROR,
    JobState.DEAD_LETTER: TaskStatus.FAILED,
    JobState.CANCELLED: TaskStatus.CANCELLED,
}
ALIASES: Mapping[str, TaskStatus] = {"Running": TaskStatus.IN_PROGRESS}
"""Other names that a filter takes; nothing ever shows them."""
STATUS_NAMES: Mapping[str, TaskStatus] = {**{str(status): status for status in TaskStatus}, **ALIASES}


def states_of(name: str) -> tuple[JobState, ...]:
    """The states that a status of the view `tasks`, or an alias of one, stands for."""
    if name not in STATUS_NAMES:
        raise InvalidRequest(f"{name!r} is no status of a task: choose from {', '.join(STATUS_NAMES)}")
    wanted = STATUS_NAMES[name]
    return tuple(state for state, status in TASK_STATUS.items() if status is wanted)
