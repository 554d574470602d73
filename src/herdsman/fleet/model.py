"""Workers, the instances that a provider rents us, and which database started them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import NewType, Self

from herdsman.ids import PoolId, WorkerId
from herdsman.states import Reason, WorkerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    id: WorkerId
    pool: PoolId
    status: WorkerStatus
    reason: Reason
    instance_type: str | None
    created_at: datetime
    last_heartbeat: datetime | None
    entered_state_at: datetime
    metadata: Mapping[str, object]
    error: str | None = None
    cost_per_hour: float | None = None


InstanceRef = NewType("InstanceRef", str)
"""The provider's own id of an instance."""


class InstanceStatus(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    """There, but not running; it may still cost something."""
    BROKEN = "broken"
    UNKNOWN = "unknown"
    """In a state that we have no word for: not ready, and not gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    ref: InstanceRef
    name: str
    """Exactly the name of the request that started it."""
    status: InstanceStatus
    gpu_type: str | None = None
    gpu_count: int = 0
    cost_per_hour: Decimal = Decimal(0)
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRequest:
    name: str
    """Unique for ever: a lost answer is found again by it."""
    worker_id: WorkerId
    pool: PoolId
    environment: Mapping[str, str]
    """What the worker needs to report for duty. Its bootstrap token is the only secret in it."""


LOCAL_NAME = "LOCAL_INSTANCE_NAME"
"""In the environment of a worker that a provider started as a process beside it: the name of that instance."""


def process_name(instance: str) -> str:
    """What a process of ours calls itself, in the 15 letters that Linux keeps, for whoever started it to find it by."""
    return f"herdsman:{sha256(instance.encode()).hexdigest()[:6]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice:
    """One GPU as its driver describes it."""

    index: int
    uuid: str
    name: str
    total_mb: int
    used_mb: int
    utilisation: int | None = None
    """Per cent of the last moment in which it worked; None when the driver does not say."""
    processes: tuple[tuple[int, int | None], ...] = ()
    """Who uses it: process id, and memory in MB where the driver says."""
    own_mb: int | None = None
    """Memory of the worker's own processes; None where the driver does not say whose it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    ready: bool
    """Jobs may come."""
    seen: bool | None
    """Whether there is a GPU; None when that is unknown."""
    fault: str | None = None
    """Why its GPU cannot be worked with."""
    vram_total_mb: int | None = None
    vram_used_mb: int | None = None
    vram_age: timedelta = timedelta(0)
    """How long before the beat the memory was measured, by the worker's own monotonic clock."""
    disk_total_mb: int | None = None
    disk_free_mb: int | None = None
    """Of the disk that the worker was started on, such as the volume of a pod; in millions of bytes."""
    devices: tuple[GpuDevice, ...] = ()
    node: str | None = None


class Promotion(StrEnum):
    """What makes a starting worker an active one."""

    POD = "pod"
    HEARTBEAT = "heartbeat"
    READY = "ready"
    FIRST_TASK = "first_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    min_workers: int = 2
    max_workers: int = 10
    """0 is a kill switch: nothing is spawned, whatever the floor says."""
    machine_is_full: bool = False
    """The ceiling is that of this machine, which has no more GPUs, and not one that somebody has set."""
    jobs_per_worker: int = 3
    scaling: str = "threshold"
    shadow: str = ""
    """A second scaling policy, which is only asked what it would do; empty where there is none."""
    promotion: Promotion = Promotion.READY
    require_gpu: bool = False
    """A worker that shows no GPU gets no job, and is ended."""
    idle_workers: int = 0
    """Warm workers that the policy `workload` keeps beyond those at work."""
    min_scaling_interval: timedelta = timedelta(seconds=45)
    grow_by: float = 1.0
    """The number of workers wanted is multiplied by it when the pool grows."""
    shrink_by: float = 1.0
    """The same when it shrinks, as far as it would not grow again at once."""
    spawning_grace: timedelta = timedelta(minutes=3)
    """How long a starting worker counts as capacity though its machine does not run."""
    target_wait: timedelta = timedelta(seconds=120)
    """The longest wait that the policy `adaptive` aims at, for all but a few jobs."""
    look_every: timedelta = timedelta(seconds=30)
    """From one cycle to the next: so long a job may wait before anybody reckons with it."""

    idle_timeout: timedelta = timedelta(minutes=5)
    overcapacity_idle_timeout: timedelta = timedelta(seconds=30)
    scale_down_grace: timedelta = timedelta(seconds=60)
    """How long a new worker is safe from being scaled down."""
    promoting_beat: timedelta = timedelta(seconds=90)
    """The oldest heartbeat that still speaks for a starting worker."""
    heartbeat_timeout: timedelta = timedelta(minutes=5)
    stuck_timeout: timedelta = timedelta(minutes=5)
    spawning_timeout: timedelta = timedelta(minutes=5)
    boot_timeout: timedelta = timedelta(minutes=30)
    script_timeout: timedelta | None = None
    """How long the start-up script of a running machine may take; None where there is no script."""
    ready_timeout: timedelta = timedelta(minutes=20)
    preparing_timeout: timedelta = timedelta(minutes=30)
    """How long an active worker may report that it is not ready yet."""
    gpu_timeout: timedelta = timedelta(minutes=5)
    not_claiming_timeout: timedelta = timedelta(minutes=10)
    vram_stale_after: timedelta = timedelta(minutes=2)
    failsafe: timedelta = timedelta(hours=2)
    shutdown_grace: timedelta = timedelta(minutes=10)
    error_grace: timedelta = timedelta(0)
    """How long the machine of a failed worker is kept for diagnosis, while nobody needs its place."""
    absence_window: timedelta = timedelta(minutes=10)
    end_again_after: timedelta = timedelta(minutes=1)
    orphan_grace: timedelta = timedelta(minutes=1)
    """So long an instance that belongs to no worker must have been listed before it is ended."""
    confirm_window: timedelta = timedelta(seconds=10)
    """How long listings must lack an instance that we ended before it counts as gone."""

    volume_min_free_gb: int | None = None
    """A network volume with less room than this is grown; None where there is none to grow."""
    volume_max_used: float = 85
    """One that is fuller than this, in per cent, is grown too."""
    volume_grow_gb: int = 50
    exact_listings: bool = False
    """A machine that was started and is not listed has ended: no listing lags."""

    max_creates_per_hour: int | None = None
    max_cost_per_hour: Decimal | None = None
    first_wait: timedelta = timedelta(seconds=30)
    longest_wait: timedelta = timedelta(minutes=10)
    max_failure_rate: float = 0.8
    min_starts_to_judge: int = 5
    failure_window: timedelta = timedelta(minutes=5)
    max_failed_in_a_row: int = 3
    job_failure_window: timedelta = timedelta(minutes=30)
    budget_per_hour: Decimal | None = None
    budget_per_day: Decimal | None = None


ADOPT = "if it is the only one in use, run herdsman db adopt"
LEAP = 1000
"""How far numbers are raised above the highest that anyone is known to have seen."""
_SEPARATOR = "--"
_STAMP = re.compile(r"([0-9a-f]{12})-([0-9]{1,18})", re.ASCII)
Place = Mapping[str, str]
"""What tells where a database is, by name."""


@dataclass(frozen=True, slots=True)
class Stamp:
    installation: str
    number: int

    @classmethod
    def of(cls, name: str) -> Self | None:
        """None for an instance of an older version, or one that somebody made manually."""
        parts = name.split(_SEPARATOR, 3)
        found = _STAMP.fullmatch(parts[2]) if len(parts) == 4 else None
        return cls(found[1], int(found[2])) if found else None

    def own_part(self, worker_id: str) -> str:
        """What a name says beside the prefix and the deployment."""
        return f"{self.installation}-{self.number}{_SEPARATOR}{worker_id}"


def worker_of(name: str) -> str:
    """The id of the worker in an instance of ours; one of an older version has no stamp in its name."""
    return name.split(_SEPARATOR, 3 if Stamp.of(name) else 2)[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    id: str
    spawned: int = 0
    """The number of the last instance that was started."""
    place: Place | None = None
    """Where it was used last; None before its first use."""
    orphans: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    """By their refs: since when every complete listing has shown an instance that belongs to no worker."""
    held: str = ""
    """How it was found to have gone back in time."""
    hint: str = ""
    """The same, by the word of a worker, which may lie: it stops nothing."""
    raised: bool = False
    """Its numbers are above all that anyone has seen since."""

    def doubt(self, here: Place, names: Iterable[str]) -> str:
        """Why it must not start or end anything, given the names of the instances; empty when it may."""
        if self.place is not None and not same_place(self.place, here):
            return (
                "this database is not where it was used last, so it may be a copy of one that is still in use:"
                f" nothing is started or ended; {ADOPT}"
            )
        went_back = self.held or self.ahead(names)
        if went_back:
            return f"this database went back in time: {went_back}; nothing is started or ended; {ADOPT}"
        return ""

    def highest(self, names: Iterable[str]) -> tuple[int, str]:
        """The highest number on an instance that carries our identity, and its name."""
        stamps = ((Stamp.of(name), name) for name in names)
        return max(
            ((each.number, name) for each, name in stamps if each and each.installation == self.id), default=(0, "")
        )

    def ahead(self, names: Iterable[str]) -> str:
        """What an instance shows that was started after the state that this database remembers."""
        number, name = self.highest(names)
        if number <= self.spawned:
            return ""
        return f"instance {name} is start number {number}, and it remembers {self.spawned}"


def same_place(before: Place, now: Place) -> bool:
    """A SQLite file keeps its inode when it is moved or mounted elsewhere, and its path when it is restored."""
    if "inode" in before and "inode" in now:
        where = ("machine", "path")
        return before["inode"] == now["inode"] or all(before.get(each) == now.get(each) for each in where)
    return before == now


def moved(before: Place | None, now: Place) -> str:
    """From where to where, in a few words for whoever may see such things; empty where it stayed."""
    if before is None or same_place(before, now):
        return ""
    others = [name for name in now if before.get(name) != now[name]]
    shown = ["path"] if "path" in others else others
    was, is_now = (", ".join(f"{name} {place.get(name)}" for name in shown) for place in (before, now))
    return f"it was at {was}, and is at {is_now}"
