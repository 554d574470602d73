"""Periodic maintenance: promotes scheduled jobs, expires claims and leases, prunes, and counts usage."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from datetime import timedelta

import structlog

from herdsman.control.commands import expire_claims, prune, stage_due_jobs
from herdsman.control.commands.sweep import end_overdue_leases
from herdsman.control.commands.usage import count_gpu_seconds
from herdsman.control.services import Services
from herdsman.core.errors import StoreUnavailable
from herdsman.loops.periodic import PeriodicLoop
from herdsman.ports import Clock, Threads

log = structlog.get_logger()

STAGING = timedelta(seconds=1)
PRUNING = timedelta(hours=1)
COUNTING = timedelta(seconds=10)
SHARE = 20
"""At most this fraction of the time is spent on counting what agents have used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """How many jobs one pass moved."""

    queued: int = 0
    taken_back: int = 0
    removed: int = 0
    leases_ended: int = 0

    def __bool__(self) -> bool:
        return any(getattr(self, counted.name) for counted in fields(self))


@dataclass
class Sweeper:
    services: Services
    clock: Clock
    sweep_interval: timedelta
    on_queued: Callable[[], None] = lambda: None
    """Told when jobs were queued: somebody may be waiting for them."""
    staging: timedelta = STAGING
    """How often jobs are looked for whose time has come."""
    _last: dict[str, float] = field(default_factory=dict[str, float])

    def loop(self, threads: Threads | None = None) -> PeriodicLoop:
        """A database that is away is waited for: no sweep is lost, only late."""
        interval = self.staging.total_seconds()

        def turn() -> float:
            swept = self.pass_once()
            if swept.queued or swept.taken_back:
                self.on_queued()
            if swept:
                log.info("sweep.done", **asdict(swept))
            return interval

        return PeriodicLoop(
            "sweeper",
            turn,
            retry_on=(StoreUnavailable,),
            on_error=lambda error: log.warning("sweep.postponed", reason=str(error)),
            backoff=(interval, interval),
            clock=self.clock,
            threads=threads,
        )

    def pass_once(self) -> Swept:
        if self._due("usage", COUNTING):
            began = self.clock.monotonic()
            count_gpu_seconds(self.services)
            # A count that takes long is made less often.
            self._last["usage"] += SHARE * (self.clock.monotonic() - began)
        return Swept(
            queued=stage_due_jobs(self.services) if self._due("stage", self.staging) else 0,
            taken_back=expire_claims(self.services) if self._due("expire", self.sweep_interval) else 0,
            removed=prune(self.services) if self._due("prune", PRUNING) else 0,
            leases_ended=end_overdue_leases(self.services) if self._due("leases", self.staging) else 0,
        )

    def _due(self, what: str, interval: timedelta) -> bool:
        now = self.clock.monotonic()
        # A little early is on time: the loop's own rhythm must not make every second pass miss.
        due = what not in self._last or now - self._last[what] >= interval.total_seconds() - 0.05
        if due:
            self._last[what] = now
        return due
