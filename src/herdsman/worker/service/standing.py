"""Whether the services of a worker can take jobs: asked in the background, since they may hang."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from threading import Event, Lock, Thread

from herdsman.connectors.manager import ConnectorManager
from herdsman.core.gpu import GpuReport
from herdsman.core.service import Fitness

Look = Callable[[], GpuReport]
UNASKED = "it was not asked yet"


class ServiceStanding:
    """The last answer of each; jobs of a service that is not fit are not claimed, so that they cost no attempts."""

    def __init__(self, manager: ConnectorManager, interval: timedelta) -> None:
        self._manager = manager
        self._interval = interval
        self._lock = Lock()
        self._last: dict[str, Fitness] = {}

    def start(self) -> None:
        Thread(target=self._run, name="services", daemon=True).start()

    def look(self) -> None:
        for kind in self._manager.types():
            found = self._manager.get(kind).fitness()
            with self._lock:
                self._last[kind] = found

    def unfit(self) -> Mapping[str, str]:
        """By type of jobs, why its service can take none."""
        with self._lock:
            said = {kind: self._last.get(kind) for kind in self._manager.types()}
        faults = {kind: UNASKED if each is None else each.fault for kind, each in said.items()}
        return {kind: fault for kind, fault in faults.items() if fault is not None}

    def seen_by(self, look: Look) -> Look:
        """What the driver says; where it sees no GPU, as when the service is on another machine, what the service says."""

        def report() -> GpuReport:
            seen = look()
            if seen.vram_total_mb is not None:
                return seen
            with self._lock:
                told = [each for each in self._last.values() if each.vram_total_mb is not None]
            return _with_memory(seen, told[0]) if told else seen

        return report

    def _run(self) -> None:
        never = Event()
        while True:
            self.look()
            never.wait(self._interval.total_seconds())


def _with_memory(seen: GpuReport, told: Fitness) -> GpuReport:
    total = told.vram_total_mb or 0
    used = None if told.vram_free_mb is None else max(0, total - told.vram_free_mb)
    return replace(seen, vram_total_mb=total, vram_used_mb=used)
