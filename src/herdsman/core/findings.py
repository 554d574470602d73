"""Why the control loop does something: a stable code, a sentence, and the numbers it was decided on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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
    # Why a worker is let go without having failed.
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
class Finding:
    code: Code
    text: str
    numbers: Mapping[str, Number] = field(default_factory=dict[str, Number])
