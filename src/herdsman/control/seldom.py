"""A look that costs something, shared by all who ask within a moment."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from herdsman.ports import Clock

T = TypeVar("T")

FRESH_S = 0.5
SHARE = 20
"""A look that takes long is repeated less often: at most this fraction of the time is spent on looking."""


@dataclass
class Seldom(Generic[T]):
    look: Callable[[], T]
    clock: Clock
    _turn: Lock = field(default_factory=Lock)
    _found: T | None = None
    _until: float = 0.0

    def get(self) -> T:
        """One looks, and the others wait for it: they want to know the same."""
        with self._turn:
            began = self.clock.monotonic()
            if self._found is None or began >= self._until:
                self._found = self.look()
                took = self.clock.monotonic() - began
                self._until = began + max(FRESH_S, SHARE * took)
            return self._found
