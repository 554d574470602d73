"""Clocks for tests: one that a test moves, and the timeline of a fake, which may run faster than real time."""

import threading
from datetime import UTC, datetime, timedelta

from herdsman.ports import Clock


class ManualClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self._now = 0.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return self._now

    def sleep(self, duration: timedelta) -> None:
        self.advance(duration)

    def advance(self, by: timedelta) -> None:
        with self._lock:
            self._now += by.total_seconds()


class Timeline:
    """Seconds since the fake was made, counted `speed` times as fast as the clock runs."""

    def __init__(self, clock: Clock, speed: float) -> None:
        self._clock = clock
        self._speed = speed
        self._zero = clock.monotonic()
        self._began = datetime.now(UTC)

    def now(self) -> float:
        return (self._clock.monotonic() - self._zero) * self._speed

    def instant(self, at: float) -> datetime:
        return self._began + timedelta(seconds=at)

    def text(self, at: float) -> str:
        return self.instant(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")
