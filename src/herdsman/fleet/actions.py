"""What the control loop can do, and why: a stable code, a sentence, and the numbers it was decided on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from herdsman.fleet.model import InstanceRef
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs.model import ClaimKey, FailureClass
from herdsman.states import PoolStatus

Number = int | float | str


class Code(StrEnum):
    # Why a worker becomes active.
    READY = "READY"
    HEARTBEAT_SEEN = "HEARTBEAT_SEEN"
    INSTANCE_RUNNING = "INSTANCE_RUNNING"
    FIRST_TASK = "FIRST_TASK"
    # Why a worker has failed.
    NO_INSTANCE = "NO_INSTANCE"
    SPAWN_FAILED = "SPAWN_FAILED"
    INSTANCE_ENDED = "INSTANCE_ENDED"
    SPAWNING_TIMEOUT = "SPAWNING_TIMEOUT"
    BOOT_TIMEOUT = "BOOT_TIMEOUT"
    SCRIPT_RUNNING_TIMEOUT = "SCRIPT_RUNNING_TIMEOUT"
    STARTUP_NEVER_READY = "STARTUP_NEVER_READY"
    GPU_NOT_DETECTED = "GPU_NOT_DETECTED"
    GPU_BROKEN = "GPU_BROKEN"
    GPU_READY_NOT_CLAIMING = "GPU_READY_NOT_CLAIMING"
    STALE_HEARTBEAT_ACTIVE_TASK = "STALE_HEARTBEAT_ACTIVE_TASK"
    STALE_HEARTBEAT_TASKS_QUEUED = "STALE_HEARTBEAT_TASKS_QUEUED"
    NO_HEARTBEAT_TASKS_QUEUED = "NO_HEARTBEAT_TASKS_QUEUED"
    STUCK_TASK = "STUCK_TASK"
    FAILING_TASKS = "FAILING_TASKS"
    # Why a worker is drained without having failed.
    IDLE = "IDLE"
    INSTANCE_GONE = "INSTANCE_GONE"
    FAILSAFE = "FAILSAFE"
    BY_HAND = "BY_HAND"
    POOL_CLOSED = "POOL_CLOSED"
    SERVED_BY_HAND = "SERVED_BY_HAND"
    LIFETIME = "LIFETIME"
    # Why a pool moves, or its workers load something else.
    POOL_SERVED = "POOL_SERVED"
    POOL_WANTED = "POOL_WANTED"
    HOLD_OVER = "HOLD_OVER"
    POOL_EMPTY = "POOL_EMPTY"
    SWAP = "SWAP"
    # Why a job or an instance is taken care of.
    WORKER_FAILED = "WORKER_FAILED"
    DRAINED = "DRAINED"
    GRACE_EXPIRED = "GRACE_EXPIRED"
    CLEAN_UP = "CLEAN_UP"
    CONFIRMED_ABSENT = "CONFIRMED_ABSENT"
    UNKNOWN_INSTANCE = "UNKNOWN_INSTANCE"
    TWIN_INSTANCE = "TWIN_INSTANCE"
    FOUND_BY_NAME = "FOUND_BY_NAME"
    # Why the fleet grows, or does not.
    FLOOR = "FLOOR"
    DEMAND = "DEMAND"
    CEILING = "CEILING"
    KILL_SWITCH = "KILL_SWITCH"
    BREAKER_OPEN = "BREAKER_OPEN"
    PROVIDER_WAITS = "PROVIDER_WAITS"
    PROVIDER_REJECTED = "PROVIDER_REJECTED"
    BUDGET_SPENT = "BUDGET_SPENT"
    CLUSTER_DRAINED = "CLUSTER_DRAINED"
    PARTIAL_SIGHT = "PARTIAL_SIGHT"
    DATABASE_NOT_ADOPTED = "DATABASE_NOT_ADOPTED"
    ENOUGH = "ENOUGH"
    STALE_VRAM = "STALE_VRAM"
    VOLUME_FULL = "VOLUME_FULL"


@dataclass(frozen=True, slots=True)
class ActionReason:
    code: Code
    text: str
    numbers: Mapping[str, Number] = field(default_factory=dict[str, Number])


@dataclass(frozen=True, slots=True)
class WorkerAction:
    worker_id: WorkerId
    reason: ActionReason


class PromoteWorker(WorkerAction):
    """Make a starting worker active: it is given jobs from now on."""


class FailWorker(WorkerAction):
    """The worker cannot work any more; its jobs and its machine are taken care of by other actions."""


class DrainIdleWorker(WorkerAction):
    """Drain a worker that holds no job; one that has got a job meanwhile stays."""


class DrainWorker(WorkerAction):
    """Drain a worker, busy or not: it takes no new job, and finishes what it holds."""


class CancelSpawn(WorkerAction):
    """End a worker that has not begun to work; it is not to blame for it."""


class ConfirmTerminated(WorkerAction):
    """Its instance is confirmed to be gone: the worker is terminated and its place is free."""


@dataclass(frozen=True, slots=True)
class RequeueJob:
    """Take the job back from a worker that has failed, without waiting for its claim to expire."""

    key: ClaimKey
    worker_id: WorkerId
    reason: ActionReason
    kind: FailureClass = FailureClass.WORKER_LOST
    """As what it counts against the job; an interruption does not."""


@dataclass(frozen=True, slots=True)
class MovePool:
    pool: PoolId
    to: PoolStatus
    reason: ActionReason


@dataclass(frozen=True, slots=True)
class AssignModelRevision:
    """Have a worker load what its pool serves now."""

    worker_id: WorkerId
    revision: int
    reason: ActionReason


@dataclass(frozen=True, slots=True)
class InstanceAction:
    worker_id: WorkerId
    ref: InstanceRef
    reason: ActionReason


class EndInstance(InstanceAction):
    """Ask the provider to end a worker's instance; asked again until it is gone."""


class AttachInstance(InstanceAction):
    """An instance whose creation had an unknown outcome was found by its name."""


@dataclass(frozen=True, slots=True)
class SpawnWorker:
    pool: PoolId
    reason: ActionReason


@dataclass(frozen=True, slots=True)
class TerminateOrphan:
    """End an instance of ours that belongs to no worker."""

    ref: InstanceRef
    name: str
    reason: ActionReason


@dataclass(frozen=True, slots=True)
class GrowVolume:
    """Have the provider make the volume larger that this worker's instance has."""

    worker_id: WorkerId
    ref: InstanceRef
    seen_gb: float
    """How large it is as the worker sees it: one that was grown, and not seen to be, is not grown again."""
    by_gb: int
    reason: ActionReason


@dataclass(frozen=True, slots=True)
class Note:
    """Nothing is done, and this is why; `about` is a worker or a pool."""

    about: str
    reason: ActionReason


_OfWorker = PromoteWorker | FailWorker | DrainIdleWorker | DrainWorker | CancelSpawn | ConfirmTerminated
_OfInstance = EndInstance | AttachInstance | TerminateOrphan | GrowVolume
Action = _OfWorker | _OfInstance | RequeueJob | MovePool | AssignModelRevision | SpawnWorker | Note
