"""The four state tables. Nothing else in the project says what may follow what."""

from enum import StrEnum

from herdsman.core.machine import Machine


class JobState(StrEnum):
    SCHEDULED = "scheduled"
    PENDING = "pending"
    CLAIMED = "claimed"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """Waiting for its retry time; a job that will not be tried again is `dead_letter`."""
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"


class WorkerState(StrEnum):
    SPAWNING = "spawning"
    ACTIVE = "active"
    TERMINATING = "terminating"
    ERROR = "error"
    TERMINATED = "terminated"


class PoolState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"
    EVICTED = "evicted"


class LeaseState(StrEnum):
    ACTIVE = "active"
    RELEASED = "released"
    EXPIRED = "expired"
    REVOKED = "revoked"


def _to(*states: JobState) -> frozenset[JobState]:
    return frozenset(states)


JOB = Machine(
    kind="job",
    table="orchestrator_jobs",
    key="job_id",
    initial=frozenset({JobState.SCHEDULED, JobState.PENDING}),
    moves={
        JobState.SCHEDULED: _to(JobState.PENDING, JobState.CANCELLED),
        JobState.PENDING: _to(JobState.CLAIMED, JobState.CANCELLED, JobState.DEAD_LETTER),
        JobState.CLAIMED: _to(
            JobState.RUNNING,
            JobState.PENDING,
            JobState.DONE,
            JobState.FAILED,
            JobState.CANCELLED,
            JobState.DEAD_LETTER,
        ),
        JobState.RUNNING: _to(
            JobState.DONE, JobState.FAILED, JobState.PENDING, JobState.CANCELLED, JobState.DEAD_LETTER
        ),
        JobState.FAILED: _to(JobState.PENDING, JobState.DEAD_LETTER, JobState.CANCELLED),
        JobState.DONE: _to(),
        JobState.DEAD_LETTER: _to(),
        JobState.CANCELLED: _to(),
    },
    reopens={
        JobState.DONE: _to(JobState.PENDING),
        JobState.DEAD_LETTER: _to(JobState.PENDING),
        JobState.CANCELLED: _to(JobState.PENDING),
    },
)

HELD = (JobState.CLAIMED, JobState.RUNNING)
"""The states in which one worker has the right to a job."""

WORKER = Machine(
    kind="worker",
    table="workers",
    key="id",
    initial=frozenset({WorkerState.SPAWNING}),
    moves={
        WorkerState.SPAWNING: frozenset({WorkerState.ACTIVE, WorkerState.ERROR}),
        WorkerState.ACTIVE: frozenset({WorkerState.TERMINATING, WorkerState.ERROR}),
        WorkerState.TERMINATING: frozenset({WorkerState.TERMINATED}),
        WorkerState.ERROR: frozenset({WorkerState.TERMINATED}),
        WorkerState.TERMINATED: frozenset(),
    },
)

SERVING = (WorkerState.SPAWNING, WorkerState.ACTIVE, WorkerState.TERMINATING)
"""The states in which a worker may live; in any other it is told to stop."""

POOL = Machine(
    kind="pool",
    table="worker_pools",
    key="pool_id",
    initial=frozenset({PoolState.STARTING}),
    moves={
        PoolState.STARTING: frozenset({PoolState.RUNNING, PoolState.DRAINING, PoolState.EVICTED}),
        PoolState.RUNNING: frozenset({PoolState.DRAINING, PoolState.EVICTED}),
        PoolState.DRAINING: frozenset({PoolState.RUNNING, PoolState.STOPPED, PoolState.EVICTED}),
        # A pool keeps its name when it is started again, so its ends are not final.
        PoolState.STOPPED: frozenset({PoolState.STARTING}),
        PoolState.EVICTED: frozenset({PoolState.STARTING}),
    },
)

LEASE = Machine(
    kind="lease",
    table="orchestrator_leases",
    key="token",
    initial=frozenset({LeaseState.ACTIVE}),
    moves={
        LeaseState.ACTIVE: frozenset({LeaseState.RELEASED, LeaseState.EXPIRED, LeaseState.REVOKED}),
        LeaseState.RELEASED: frozenset(),
        LeaseState.EXPIRED: frozenset(),
        LeaseState.REVOKED: frozenset(),
    },
)

MACHINES = (JOB, WORKER, POOL, LEASE)
