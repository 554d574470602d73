"""Whether this machine is fit for jobs, told with each beat: its GPUs, its handlers, its disk and its memory."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import gettempdir

from herdsman.core.gpu import GpuReport
from herdsman.worker.warm import Warm

_MB = 1024 * 1024
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What must be free before jobs may come, in MB."""

    disk_mb: int = 0
    memory_mb: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """None where it cannot be seen."""

    disk_mb: int | None
    memory_mb: int | None


@dataclass(frozen=True, slots=True)
class Disk:
    """In millions of bytes."""

    total_mb: int
    free_mb: int


@dataclass(kw_only=True)
class Fitness:
    gpus: Callable[[], GpuReport | None]
    warm: Warm
    needs: Needs
    workspaces: Path = Path(gettempdir())
    """Where jobs write."""
    volume: Path = field(default_factory=Path.cwd)
    """Where the worker was started: on a rented machine, its volume."""
    _passed: bool = False

    def report(self) -> GpuReport | None:
        seen = self.gpus()
        if seen is None:
            return None
        self._passed = self._passed or (self.warm.ready and seen.ready)
        measured = disk_of(self.volume)
        if measured is not None:
            seen = replace(seen, disk_total_mb=measured.total_mb, disk_free_mb=measured.free_mb)
        return judge(seen, free(self.workspaces), self.needs, fault=self.warm.fault, loaded=self._passed)

    def short(self) -> str | None:
        """What a job would lack here now; there may be room again, so nobody has failed."""
        return lack(free(self.workspaces), self.needs)


def judge(seen: GpuReport, free: Free, needs: Needs, *, fault: str | None, loaded: bool) -> GpuReport:
    """The report with all that speaks against jobs. A full disk is no fault: the worker waits until there is room."""
    why = seen.fault or fault
    ready = seen.ready and loaded and why is None and lack(free, needs) is None
    return replace(seen, ready=ready, fault=why)


def lack(free: Free, needs: Needs) -> str | None:
    return _lack("disk", free.disk_mb, needs.disk_mb) or _lack("memory", free.memory_mb, needs.memory_mb)


def _lack(what: str, there: int | None, needed: int) -> str | None:
    if there is None or there >= needed:
        return None
    return f"only {there} MB of {what} are free, and jobs need {needed}: make room"


def disk_of(place: Path) -> Disk | None:
    try:
        usage = shutil.disk_usage(place)
    except OSError:
        return None
    return Disk(total_mb=usage.total // 1_000_000, free_mb=usage.free // 1_000_000)


def free(workspaces: Path, meminfo: Path = _MEMINFO) -> Free:
    try:
        disk = shutil.disk_usage(workspaces).free // _MB
    except OSError:
        disk = None
    return Free(disk_mb=disk, memory_mb=_free_memory(meminfo))


def _free_memory(meminfo: Path) -> int | None:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) // 1024
    except (OSError, ValueError):
        return None
    return None
