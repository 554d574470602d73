"""Whether this machine and its services are fit for jobs: GPUs, handlers, disk, memory, external services."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from tempfile import gettempdir
from threading import Lock

from herdsman.connectors.registry import ConnectorManager
from herdsman.fleet.model import GpuReport
from herdsman.jobs.protocol import Fitness
from herdsman.worker.gpu import GpuReader, repeat
from herdsman.worker.handler_pool import HandlerPool

_MB = 1024 * 1024
UNASKED = "it was not asked yet"


@dataclass(kw_only=True)
class MachineHealth:
    gpus: Callable[[], GpuReport | None]
    warm: HandlerPool
    disk_mb: int = 0
    """What must be free before jobs may come."""
    memory_mb: int = 0
    workspaces: Path = Path(gettempdir())
    """Where jobs write."""
    volume: Path = field(default_factory=Path.cwd)
    """Where the worker was started: on a rented machine, its volume."""
    meminfo: Path = Path("/proc/meminfo")
    _passed: bool = False

    def report(self) -> GpuReport | None:
        """The GPUs with all that speaks against jobs. A full disk is no fault: the worker waits until there is room."""
        seen = self.gpus()
        if seen is None:
            return None
        self._passed = self._passed or (self.warm.ready and seen.ready)
        with suppress(OSError):
            usage = shutil.disk_usage(self.volume)
            seen = replace(seen, disk_total_mb=usage.total // 1_000_000, disk_free_mb=usage.free // 1_000_000)
        fault = seen.fault or self.warm.fault
        ready = seen.ready and self._passed and fault is None and self.short() is None
        return replace(seen, ready=ready, fault=fault)

    def short(self) -> str | None:
        """What a job would lack here now; what cannot be measured is not lacking."""
        free: dict[str, int] = {}
        with suppress(OSError):
            free["disk"] = shutil.disk_usage(self.workspaces).free // _MB
        with suppress(OSError, ValueError):
            for line in self.meminfo.read_text().splitlines():
                if line.startswith("MemAvailable:"):
                    free["memory"] = int(line.split()[1]) // 1024
        for what, needed in (("disk", self.disk_mb), ("memory", self.memory_mb)):
            if (there := free.get(what, needed)) < needed:
                return f"only {there} MB of {what} are free, and jobs need {needed}: make room"
        return None


@dataclass(kw_only=True)
class ServiceHealth:
    """The last answer of each; jobs of a service that is not fit are not claimed, so that they cost no attempts."""

    manager: ConnectorManager
    interval: timedelta
    stall: timedelta
    """How long a service may be at one job before it is sent no others."""
    say: Callable[[str], None] = lambda _: None
    _lock: Lock = field(default_factory=Lock)
    _last: dict[str, Fitness] = field(default_factory=dict[str, Fitness])
    _at: dict[str, tuple[str | None, float]] = field(default_factory=dict[str, tuple[str | None, float]])
    """By type of jobs: what its service is at, and since when."""

    def start(self) -> None:
        repeat("services", self.look, self.interval)

    def look(self) -> None:
        for kind in self.manager.types():
            found = self._moving(kind, self.manager.get(kind).fitness())
            with self._lock:
                before, self._last[kind] = self._last.get(kind), found
            was_well = before is None or before.fault is None
            if found.fault is not None and was_well:
                self.say(f"jobs of type {kind} are not taken: {found.fault}")
            elif found.fault is None and not was_well:
                self.say(f"jobs of type {kind} are taken again")

    def _moving(self, kind: str, found: Fitness) -> Fitness:
        """One whose execution is dead still takes jobs and answers every question: only that it moves is proof of life."""
        if found.fault is not None:
            return found
        now = self.manager.around.clock.monotonic()
        before, since = self._at.get(kind, (None, now))
        if found.working_on is None or found.working_on != before:
            self._at[kind] = (found.working_on, now)
            return found
        allowed = self.stall.total_seconds()
        if now - since < allowed:
            return found
        said = f"it has been at its job {before} for over {allowed:.0f} seconds, and begins no other until that ends"
        return replace(found, fault=said)

    def unfit(self) -> Mapping[str, str]:
        """By type of jobs, why its service can take none."""
        with self._lock:
            said = {kind: self._last.get(kind) for kind in self.manager.types()}
        faults = {kind: UNASKED if each is None else each.fault for kind, each in said.items()}
        return {kind: fault for kind, fault in faults.items() if fault is not None}

    def faults(self) -> Mapping[str, str]:
        """The same, of those that were asked."""
        return {kind: fault for kind, fault in self.unfit().items() if fault != UNASKED}

    def seen_by(self, look: GpuReader) -> GpuReader:
        """What the driver says; where it sees no GPU, as when the service is on another machine, what the service says."""

        def report() -> GpuReport:
            seen = look()
            if seen.vram_total_mb is not None:
                return seen
            with self._lock:
                reported = [each for each in self._last.values() if each.vram_total_mb is not None]
            if not reported:
                return seen
            total, free_mb = reported[0].vram_total_mb or 0, reported[0].vram_free_mb
            used = None if free_mb is None else max(0, total - free_mb)
            return replace(seen, seen=True if total else seen.seen, vram_total_mb=total, vram_used_mb=used)

        return report
