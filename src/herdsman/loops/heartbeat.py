"""When a loop last showed that it lives, and how long it may go without doing so."""

import threading
import time
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol


class Ticks(Protocol):
    """A clock that never goes back; the module `time` is one."""

    def monotonic(self) -> float: ...


@dataclass(slots=True, eq=False)
class Heartbeat:
    """When a loop last showed that it lives; any thread may beat and read it."""

    clock: Ticks = field(default=time, repr=False)
    _last_beat: float = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        self._last_beat = self.clock.monotonic()

    def beat(self) -> None:
        with self._lock:
            self._last_beat = self.clock.monotonic()

    def elapsed(self) -> float:
        """Seconds since the last beat."""
        with self._lock:
            return self.clock.monotonic() - self._last_beat


class Runnable(Protocol):
    """A loop. A `name`, `pause()` and `give_back()` are used where there are such."""

    @property
    def running(self) -> bool: ...

    @property
    def heartbeat(self) -> Heartbeat | None:
        """None when nobody can tell from outside whether it stands still."""
        return None

    def run(
        self, max_iterations: int | None = None, visibility_timeout: float = 1800, wait_time_seconds: float = 30
    ) -> None: ...

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Ask it to end and wait; False when it has not ended in time."""
        ...


class Threshold(Protocol):
    def seconds(self) -> float: ...


@dataclass(kw_only=True, eq=False)
class AdaptiveThreshold:
    """A multiple of what most pieces of work took lately, never under the floor nor over the ceiling.

    Until enough has been measured it is the ceiling: patience costs time, a wrong kill costs work.
    """

    floor: float = 60.0
    ceiling: float = 720.0
    share: float = 0.99
    factor: float = 3.0
    keep: int = 500
    fewest: int = 20
    _durations: tuple[float, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        if not 0 < self.floor <= self.ceiling:
            raise ValueError(f"floor is {self.floor} and ceiling {self.ceiling}: use 0 < floor <= ceiling")
        if not 0 < self.share <= 1 or self.factor < 1:
            raise ValueError(f"share is {self.share} and factor {self.factor}: use a share up to 1, a factor from 1 on")
        if not 1 <= self.fewest <= self.keep:
            raise ValueError(f"fewest is {self.fewest} and keep {self.keep}: use 1 <= fewest <= keep")

    def note(self, took: float) -> None:
        # A new tuple each time: whoever judges in another thread reads the old one to its end.
        self._durations = (*self._durations, took)[-self.keep :]

    def seconds(self) -> float:
        durations = self._durations
        if len(durations) < self.fewest:
            return self.ceiling
        # The smallest value that at least this share of them does not exceed.
        usual = sorted(durations)[max(0, ceil(self.share * len(durations)) - 1)]
        return min(self.ceiling, max(self.floor, usual * self.factor))


def seconds_of(threshold: float | Threshold) -> float:
    return threshold if isinstance(threshold, int | float) else threshold.seconds()
