"""Whether this machine and its services are fit for jobs: GPUs, handlers, disk, memory, external services."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from tempfile import gettempdir
from threading import Event, Lock, Thread

from herdsman.connectors.registry import ConnectorManager
from herdsman.fleet.model import GpuReport
from herdsman.jobs.protocol import Fitness
from herdsman.worker.handler_pool import HandlerPool

_MB = 1024 * 1024
_MEMINFO = Path("/proc/meminfo")
Look = Callable[[], GpuReport]
UNASKED = "it was not asked yet"


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
class MachineHealth:
    gpus: Callable[[], GpuReport | None]
    warm: HandlerPool
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
    for what, there, needed in (
        ("disk", free.disk_mb, needs.disk_mb),
        ("memory", free.memory_mb, needs.memory_mb),
    ):
        if there is not None and there < needed:
            return f"only {there} MB of {what} are free, and jobs need {needed}: make room"
    return None


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
    try:
        lines = meminfo.read_text().splitlines()
        memory = next(
            (int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:")), None
        )
    except (OSError, ValueError):
        memory = None
    return Free(disk_mb=disk, memory_mb=memory)


class ServiceHealth:
    """The last answer of each; jobs of a service that is not fit are not claimed, so that they cost no attempts."""

    def __init__(
        self,
        manager: ConnectorManager,
        interval: timedelta,
        *,
        stall: timedelta,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`stall` is how long a service may be at one job before it is sent no others."""
        self._say = say
        self._manager = manager
        self._types = tuple(manager.types())
        self._interval = interval
        self._stall = stall
        self._lock = Lock()
        self._last: dict[str, Fitness] = {}
        self._at: dict[str, tuple[str | None, float]] = {}
        """By type of jobs: what its service is at, and since when."""

    def start(self) -> None:
        Thread(target=self._run, name="services", daemon=True).start()

    def look(self) -> None:
        for kind in self._manager.types():
            found = self._moving(kind, self._manager.get(kind).fitness())
            with self._lock:
                before, self._last[kind] = self._last.get(kind), found
            was_well = before is None or before.fault is None
            if found.fault is not None and was_well:
                self._say(f"jobs of type {kind} are not taken: {found.fault}")
            elif found.fault is None and not was_well:
                self._say(f"jobs of type {kind} are taken again")

    def _moving(self, kind: str, found: Fitness) -> Fitness:
        """One whose execution is dead still takes jobs and answers every question: only that it moves is proof of life."""
        if found.fault is not None:
            return found
        now = self._manager.around.clock.monotonic()
        before, since = self._at.get(kind, (None, now))
        if found.working_on is None or found.working_on != before:
            self._at[kind] = (found.working_on, now)
            return found
        allowed = self._stall.total_seconds()
        if now - since < allowed:
            return found
        said = f"it has been at its job {before} for over {allowed:.0f} seconds, and begins no other until that ends"
        return replace(found, fault=said)

    def unfit(self) -> Mapping[str, str]:
        """By type of jobs, why its service can take none."""
        with self._lock:
            said = {kind: self._last.get(kind) for kind in self._types}
        faults = {kind: UNASKED if each is None else each.fault for kind, each in said.items()}
        return {kind: fault for kind, fault in faults.items() if fault is not None}

    def faults(self) -> Mapping[str, str]:
        """The same, of those that were asked."""
        return {kind: fault for kind, fault in self.unfit().items() if fault != UNASKED}

    def seen_by(self, look: Look) -> Look:
        """What the driver says; where it sees no GPU, as when the service is on another machine, what the service says."""

        def report() -> GpuReport:
            seen = look()
            if seen.vram_total_mb is not None:
                return seen
            with self._lock:
                told = [each for each in self._last.values() if each.vram_total_mb is not None]
            if not told:
                return seen
            total, free_mb = told[0].vram_total_mb or 0, told[0].vram_free_mb
            used = None if free_mb is None else max(0, total - free_mb)
            return replace(seen, seen=True if total else seen.seen, vram_total_mb=total, vram_used_mb=used)

        return report

    def _run(self) -> None:
        never = Event()
        while True:
            self.look()
            never.wait(self._interval.total_seconds())
