"""Whose turn it is, where several agents wait: they are served in a circle.

Each process keeps its own place in the circle. It is no promise, only manners: nothing is lost with it.
"""

from threading import Lock

from herdsman.core.model import PoolId


class Turns:
    def __init__(self) -> None:
        self._lock = Lock()
        self._last: dict[PoolId, str] = {}

    def last(self, pool: PoolId) -> str:
        """The agent that was served last; the circle goes on behind it."""
        with self._lock:
            return self._last.get(pool, "")

    def served(self, pool: PoolId, agent: str) -> None:
        with self._lock:
            self._last[pool] = agent
