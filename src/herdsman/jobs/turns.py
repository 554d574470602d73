"""Whose turn it is, where several agents wait: they are served in a circle.

Each process keeps its own place in the circle. It is no promise, only manners: nothing is lost with it.
"""

from collections.abc import Mapping
from threading import Lock

from herdsman.db.connection import Database
from herdsman.fleet import workers_sql
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs.protocol import Ask


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


MOST_KNOWN = 50_000


class KnownTypes:
    """What this process has written already. Forgetting costs one look at a row, and nothing else."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[WorkerId, tuple[str, ...]] = {}

    def note(self, database: Database, asks: Mapping[WorkerId, Ask]) -> None:
        """In a transaction of its own for each: nobody who asks for work waits for another's row."""
        for worker_id, types in self._news(asks).items():
            database.transact(
                lambda tx, worker=worker_id, said=types: workers_sql.note_types(tx, worker, said)
            )
            with self._lock:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[worker_id] = types

    def _news(self, asks: Mapping[WorkerId, Ask]) -> dict[WorkerId, tuple[str, ...]]:
        """Who fills up a batch names only its type. And who never named any takes anything: that is how it counts."""
        with self._lock:
            return {
                worker_id: ask.types
                for worker_id, ask in asks.items()
                if not ask.beside and self._known.get(worker_id, ()) != ask.types
            }
