"""When a quiet job is asked about, and when one that does not move is given up: pure looks at the clock."""

from dataclasses import dataclass, field
from datetime import timedelta

from herdsman.core.service import Working


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """How closely jobs on a service are watched."""

    interval: timedelta = timedelta(seconds=30)
    """WORKER_HEALTH_CHECK_INTERVAL_MS: how often quiet jobs are looked for."""
    inactivity: timedelta = timedelta(seconds=30)
    """WORKER_WEBSOCKET_INACTIVITY_TIMEOUT_MS: silence after which a job is quiet."""
    patience: timedelta = timedelta(seconds=120)
    """How long a service may be away before the attempt is over."""
    stall: timedelta = timedelta(seconds=900)
    """How long a job may stand still there while the service says that it works on it."""
    settle: timedelta = timedelta(seconds=10)
    """How long a job whose submission got no answer may take to show up there."""


@dataclass(slots=True, kw_only=True)
class HealthMonitor:
    """A timer that acts on silence alone (S3-06 to S3-09). Only messages of this very job count (C-14)."""

    watching: Watching
    began: float
    _heard_at: float = field(init=False)
    _look_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._heard_at = self.began
        self._look_at = self.began + self.watching.interval.total_seconds()

    def heard(self, now: float) -> None:
        self._heard_at = now

    def inactive(self, now: float) -> float:
        return now - self._heard_at

    def is_due(self, now: float) -> bool:
        """True at most once for each turn of the timer."""
        if now < self._look_at:
            return False
        self._look_at = now + self.watching.interval.total_seconds()
        return self.inactive(now) >= self.watching.inactivity.total_seconds()


@dataclass(slots=True, kw_only=True)
class Stall:
    """A service that says "running" is no proof of life: a dead thread says so for ever.

    While a job waits there behind the work of others, nothing is counted: how long that takes is not its fault, and
    only its own timeout ends the wait.
    """

    limit: timedelta
    began: float
    _seen: Working | None = None
    _moved_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._moved_at = self.began

    def moved(self, now: float) -> None:
        """It spoke by itself."""
        self._moved_at = now

    def look(self, seen: Working, now: float) -> str | None:
        """Why it is given up; None while something moves, or where the service says nothing that could."""
        if seen.position is None and seen.done is None:
            return None
        if seen.position or seen != self._seen:
            self._seen, self._moved_at = seen, now
        still = now - self._moved_at
        if still < self.limit.total_seconds():
            return None
        return f"the service says that it runs, but nothing has moved for {still:.0f} seconds"
