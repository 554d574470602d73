"""What the control loop may do. Each action carries the finding that it follows from."""

from dataclasses import dataclass

from herdsman.core.findings import Finding
from herdsman.core.instances import InstanceRef
from herdsman.core.model import ClaimKey, PoolId, WorkerId


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


@dataclass(frozen=True, slots=True)
class DrainWorker:
    worker_id: WorkerId
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
class Note:
    """Nothing is done, and this is why; `about` is a worker or a pool."""

    about: str
    why: Finding


Action = (
    PromoteWorker
    | FailWorker
    | ReturnJob
    | DrainWorker
    | EndInstance
    | BuryWorker
    | SpawnWorker
    | AttachInstance
    | EndStray
    | Note
)
