"""What the control loop may do. Each action carries the finding that it follows from."""

from dataclasses import dataclass

from herdsman.core.findings import Finding
from herdsman.core.instances import InstanceRef
from herdsman.core.model import ClaimKey, PoolId, WorkerId
from herdsman.core.retry import FailureClass
from herdsman.core.states import PoolState


@dataclass(frozen=True, slots=True)
class PromoteWorker:
    worker_id: WorkerId
    why: Finding


@dataclass(frozen=True, slots=True)
class FailWorker:
    worker_id: WorkerId
    why: Finding


@dataclass(frozen=True, slots=True)
class ReturnJob:
    """Take the job back from a worker that has failed, without waiting for its claim to expire."""

    key: ClaimKey
    worker_id: WorkerId
    why: Finding
    kind: FailureClass = FailureClass.WORKER_LOST
    """As what it counts against the job; an interruption does not."""


@dataclass(frozen=True, slots=True)
class DrainWorker:
    """Let a worker go that holds no job; one that has got a job meanwhile stays."""

    worker_id: WorkerId
    why: Finding


@dataclass(frozen=True, slots=True)
class RetireWorker:
    """Let a worker go, busy or not: it takes no new job, and finishes what it holds."""

    worker_id: WorkerId
    why: Finding


@dataclass(frozen=True, slots=True)
class CallOffWorker:
    """End a worker that has not begun to work; it is not to blame for it."""

    worker_id: WorkerId
    why: Finding


@dataclass(frozen=True, slots=True)
class MovePool:
    pool: PoolId
    to: PoolState
    why: Finding


@dataclass(frozen=True, slots=True)
class OfferRevision:
    """Have a worker load what its pool serves now."""

    worker_id: WorkerId
    revision: int
    why: Finding


@dataclass(frozen=True, slots=True)
class EndInstance:
    """Ask the provider to end a worker's instance; asked again until it is gone."""

    worker_id: WorkerId
    ref: InstanceRef
    why: Finding


@dataclass(frozen=True, slots=True)
class BuryWorker:
    """Its instance is confirmed to be gone: the worker is terminated and its place is free."""

    worker_id: WorkerId
    why: Finding


@dataclass(frozen=True, slots=True)
class SpawnWorker:
    pool: PoolId
    why: Finding


@dataclass(frozen=True, slots=True)
class AttachInstance:
    """An instance whose creation had an unknown outcome was found by its name."""

    worker_id: WorkerId
    ref: InstanceRef
    why: Finding


@dataclass(frozen=True, slots=True)
class EndStray:
    """End an instance of ours that belongs to no worker."""

    ref: InstanceRef
    name: str
    why: Finding


@dataclass(frozen=True, slots=True)
class GrowVolume:
    """Have the provider make the volume larger that this worker's instance has."""

    worker_id: WorkerId
    ref: InstanceRef
    seen_gb: float
    """How large it is as the worker sees it: one that was grown, and not seen to be, is not grown again."""
    by_gb: int
    why: Finding


@dataclass(frozen=True, slots=True)
class Note:
    """Nothing is done, and this is why; `about` is a worker or a pool."""

    about: str
    why: Finding


Action = (
    PromoteWorker
    | FailWorker
    | ReturnJob
    | DrainWorker
    | RetireWorker
    | CallOffWorker
    | MovePool
    | OfferRevision
    | EndInstance
    | BuryWorker
    | SpawnWorker
    | AttachInstance
    | EndStray
    | GrowVolume
    | Note
)
