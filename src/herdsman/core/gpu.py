"""What a worker says about its GPUs with each beat."""

from dataclasses import dataclass
from datetime import timedelta


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
    """Whether there is a GPU; None when nobody could look."""
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
    """The machine that they are in."""
