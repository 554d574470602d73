"""Whether this machine is fit for jobs, told with each beat: its GPUs, its handlers, its disk and its memory."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
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


@dataclass(kw_only=True)
class Fitness:
    gpus: Callable[[], GpuReport | None]
    warm: Warm
    needs: Needs
    workspaces: Path = Path(gettempdir())
    """Where jobs write."""
    _passed: bool = False

    def report(self) -> GpuReport | None:
        seen = self.gpus()
        if seen is None:
            return None
        self._passed = self._passed or (self.warm.ready and seen.ready)
        return judge(seen, free(self.workspaces), self.needs, fault=self.warm.fault, loaded=self._passed)


def judge(seen: GpuReport, free: Free, needs: Needs, *, fault: str | None, loaded: bool) -> GpuReport:
    """The report with all that speaks against jobs; until the handlers are loaded there is only no yes."""
    why = seen.fault or fault or _lack("disk", free.disk_mb, needs.disk_mb)
    why = why or _lack("memory", free.memory_mb, needs.memory_mb)
    return replace(seen, ready=seen.ready and loaded and why is None, fault=why)


def _lack(what: str, there: int | None, needed: int) -> str | None:
    if there is None or there >= needed:
        return None
    return f"only {there} MB of {what} are free, and jobs need {needed}: make room"


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
