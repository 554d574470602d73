"""A state machine as a value: which states there are, where things begin, and what may follow what."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Generic, TypeVar

State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True)
class Machine(Generic[State]):
    """The moves of one kind of thing. Code, CHECKs, triggers and diagrams are all made from this."""

    kind: str
    """The word for one such thing in the audit and in messages."""
    table: str
    key: str
    """The column that identifies a row of `table`."""
    initial: frozenset[State]
    moves: Mapping[State, frozenset[State]]
    view: str = ""
    """Where people read the rows, if not in the table."""
    reopens: Mapping[State, frozenset[State]] = field(default_factory=lambda: MappingProxyType({}))
    """Moves out of an end state; only an explicit request of a person may make them."""

    @property
    def public(self) -> str:
        return self.view or self.table

    @property
    def states(self) -> tuple[State, ...]:
        return tuple(self.moves)

    @property
    def terminal(self) -> frozenset[State]:
        return frozenset(state for state, following in self.moves.items() if not following)

    @property
    def live(self) -> frozenset[State]:
        return frozenset(self.moves) - self.terminal

    def allows(self, here: State, there: State) -> bool:
        return there in self.moves[here]

    def sources(self, to: State) -> tuple[State, ...]:
        """The states from which `to` may be entered, in the order of the table."""
        return tuple(state for state, following in self.moves.items() if to in following)

    def reachable(self, start: Iterable[State]) -> frozenset[State]:
        """Every state that can be reached from `start`, by ordinary moves."""
        seen: set[State] = set()
        frontier = set(start)
        while frontier:
            seen |= frontier
            frontier = {after for state in frontier for after in self.moves[state]} - seen
        return frozenset(seen)


AnyMachine = Machine[Any]
"""One of the machines, whichever."""


class JobStatus(StrEnum):
    SCHEDULED = "scheduled"
    PENDING = "pending"
    CLAIMED = "claimed"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """Waiting for its retry time; a job that will not be tried again is `dead_letter`."""
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"


class WorkerStatus(StrEnum):
    SPAWNING = "spawning"
    ACTIVE = "active"
    TERMINATING = "terminating"
    ERROR = "error"
    TERMINATED = "terminated"


class PoolStatus(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"
    EVICTED = "evicted"


class LeaseStatus(StrEnum):
    ACTIVE = "active"
    RELEASED = "released"
    EXPIRED = "expired"
    REVOKED = "revoked"


def _to(*states: JobStatus) -> frozenset[JobStatus]:
    return frozenset(states)


JOB = Machine(
    kind="job",
    table="job_states",
    view="orchestrator_jobs",
    key="job_id",
    initial=frozenset({JobStatus.SCHEDULED, JobStatus.PENDING}),
    moves={
        JobStatus.SCHEDULED: _to(JobStatus.PENDING, JobStatus.CANCELLED),
        JobStatus.PENDING: _to(JobStatus.CLAIMED, JobStatus.CANCELLED, JobStatus.DEAD_LETTER),
        JobStatus.CLAIMED: _to(
            JobStatus.RUNNING,
            JobStatus.PENDING,
            JobStatus.DONE,
            JobStatus.FAILED,
            JobStatus.CANCELLED,
            JobStatus.DEAD_LETTER,
        ),
        JobStatus.RUNNING: _to(
            JobStatus.DONE, JobStatus.FAILED, JobStatus.PENDING, JobStatus.CANCELLED, JobStatus.DEAD_LETTER
        ),
        JobStatus.FAILED: _to(JobStatus.PENDING, JobStatus.DEAD_LETTER, JobStatus.CANCELLED),
        JobStatus.DONE: _to(),
        JobStatus.DEAD_LETTER: _to(),
        JobStatus.CANCELLED: _to(),
    },
    reopens={
        JobStatus.DONE: _to(JobStatus.PENDING),
        JobStatus.DEAD_LETTER: _to(JobStatus.PENDING),
        JobStatus.CANCELLED: _to(JobStatus.PENDING),
    },
)
HELD = (JobStatus.CLAIMED, JobStatus.RUNNING)
"""The states in which one worker has the right to a job."""
WAITING = (JobStatus.PENDING, JobStatus.SCHEDULED, JobStatus.FAILED)
"""The states in which nobody has begun a job's next attempt."""
WORKER = Machine(
    kind="worker",
    table="workers",
    key="id",
    initial=frozenset({WorkerStatus.SPAWNING}),
    moves={
        WorkerStatus.SPAWNING: frozenset({WorkerStatus.ACTIVE, WorkerStatus.ERROR}),
        WorkerStatus.ACTIVE: frozenset({WorkerStatus.TERMINATING, WorkerStatus.ERROR}),
        WorkerStatus.TERMINATING: frozenset({WorkerStatus.TERMINATED}),
        WorkerStatus.ERROR: frozenset({WorkerStatus.TERMINATED}),
        WorkerStatus.TERMINATED: frozenset(),
    },
)
SERVING = (WorkerStatus.SPAWNING, WorkerStatus.ACTIVE, WorkerStatus.TERMINATING)
"""The states in which a worker may live; in any other it is told to stop."""
POOL = Machine(
    kind="pool",
    table="worker_pools",
    key="pool_id",
    initial=frozenset({PoolStatus.STARTING}),
    moves={
        PoolStatus.STARTING: frozenset({PoolStatus.RUNNING, PoolStatus.DRAINING, PoolStatus.EVICTED}),
        PoolStatus.RUNNING: frozenset({PoolStatus.DRAINING, PoolStatus.EVICTED}),
        PoolStatus.DRAINING: frozenset({PoolStatus.RUNNING, PoolStatus.STOPPED, PoolStatus.EVICTED}),
        # A pool keeps its name when it is started again, so its ends are not final.
        PoolStatus.STOPPED: frozenset({PoolStatus.STARTING}),
        PoolStatus.EVICTED: frozenset({PoolStatus.STARTING}),
    },
)
LEASE = Machine(
    kind="lease",
    table="orchestrator_leases",
    key="token",
    initial=frozenset({LeaseStatus.ACTIVE}),
    moves={
        LeaseStatus.ACTIVE: frozenset({LeaseStatus.RELEASED, LeaseStatus.EXPIRED, LeaseStatus.REVOKED}),
        LeaseStatus.RELEASED: frozenset(),
        LeaseStatus.EXPIRED: frozenset(),
        LeaseStatus.REVOKED: frozenset(),
    },
)
MACHINES = (JOB, WORKER, POOL, LEASE)


class Reason(StrEnum):
    SUBMITTED = "submitted"
    DUE = "due"
    """Its `run_at` has come."""
    CLAIMED = "claimed"
    STARTED = "started"
    COMPLETED = "completed"
    RECOVERED = "recovered"
    """Its result had been made and was missed: it was found at the service, and nothing had to run again."""
    RELEASED = "released"
    """The worker gave the job back unharmed: it drains, or lost its machine with notice."""
    NOT_BEGUN = "not_begun"
    """The worker had taken the job ahead and did not begin it: the claim counts no attempt."""
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"
    """A person put a finished job back into the queue."""
    REQUEUED_EDITED = "requeued_edited"
    """The same, with another payload."""

    USER_ERROR = "user_error"
    JOB_ERROR = "job_error"
    OUT_OF_MEMORY = "out_of_memory"
    INFRASTRUCTURE = "infrastructure"
    TIMEOUT = "timeout"
    CLAIM_EXPIRED = "claim_expired"
    """The worker fell silent while it held the job."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    OUT_OF_MEMORY_AGAIN = "out_of_memory_again"
    INTERRUPTED_TOO_OFTEN = "interrupted_too_often"
    KILLS_WORKERS = "kills_workers"
    """As many workers as allowed were lost while running this job."""

    GRANTED = "granted"
    LEASE_EXPIRED = "lease_expired"
    """No heartbeat came in time."""
    REVOKED = "revoked"
    """A person took it back."""
    JOB_ENDED = "job_ended"
    """The worker holds no job any more."""

    CREATED = "created"
    STARTED_AGAIN = "started_again"
    SERVED = "served"
    """A worker of the pool is there."""
    HOLD_OVER = "hold_over"
    """Nobody used it for as long as it was to be held."""
    EVICTED = "evicted"
    EMPTY = "empty"
    """Its last worker is gone."""

    CHANGED = "changed"
    """A person changed the policy."""
    PAUSED = "paused"
    RESUMED = "resumed"
    TIME_OVER = "time_over"
    """It was held for a time that has passed."""

    REGISTERED = "registered"
    READY = "ready"
    DRAINED = "drained"
    STOPPED = "stopped"
    LOST = "lost"
