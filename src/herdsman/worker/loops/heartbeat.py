"""The sign of life of one loop."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

logger = logging.getLogger(__name__)


class Ticks(Protocol):
    """A clock that never goes back; the module `time` is one."""

    def monotonic(self) -> float: ...


@dataclass(slots=True, eq=False)
class Heartbeat:
    """When a loop last showed that it lives; any thread may beat and look."""

    clock: Ticks = field(default=time, repr=False)
    _last_beat: float = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _followers: tuple[Callable[[], None], ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        self._last_beat = self.clock.monotonic()

    def beat(self) -> None:
        with self._lock:
            self._last_beat = self.clock.monotonic()
        for follower in self._followers:
            self._tell(follower)

    def elapsed(self) -> float:
        """Seconds since the last beat."""
        with self._lock:
            return self.clock.monotonic() - self._last_beat

    def follow(self, follower: Callable[[], None]) -> None:
        """Call this after each beat, in the thread that beats."""
        with self._lock:
            self._followers = (*self._followers, follower)

    def _tell(self, follower: Callable[[], None]) -> None:
        try:
            follower()
        except Exception:  # a broken follower must not look like a loop that stands still
            logger.exception("Heartbeat: a follower failed; the beat itself counts")
