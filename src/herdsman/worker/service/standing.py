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
            self._tell(kind, None if before is None else before.fault, found.fault)

    def _tell(self, kind: str, before: str | None, fault: str | None) -> None:
        """When it changes between well and unwell, once."""
        if fault is not None and before is None:
            self._say(f"jobs of type {kind} are not taken: {fault}")
        elif fault is None and before is not None:
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
            said = {kind: self._last.get(kind) for kind in self._manager.types()}
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
    return replace(seen, seen=True if total else seen.seen, vram_total_mb=total, vram_used_mb=used)
