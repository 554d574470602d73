"""The sweep that makes loss harmless: what waits in the database and was not announced is announced now."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from herdsman.bus.streams import PAGE, Streams
from herdsman.control.streams.announcer import announce
from herdsman.control.streams.roster import Roster
from herdsman.control.streams.settler import letter
from herdsman.control.streams.state import BusState, Count
from herdsman.core.hints import Hint
from herdsman.db.connection import Database
from herdsman.store import hints

FIRST = 1000
"""Jobs of each pool: those that will be claimed next. The others come nearer, and are announced then."""
DEAD_WITHIN = timedelta(days=1)
MOST_DEAD = 1000


@dataclass(frozen=True, slots=True)
class Resync:
    redis: Streams
    database: Database
    roster: Roster
    state: BusState

    def run(self) -> None:
        for pool in self.database.read(hints.waiting_pools):
            first = self.database.read(lambda tx, pool=pool: hints.waiting(tx, pool, FIRST))
            for begin in range(0, len(first), PAGE):
                self._repeat(first[begin : begin + PAGE])
        self._dead()

    def _repeat(self, waiting: Sequence[Hint]) -> None:
        known = self.redis.announced([hint.job_id for hint in waiting])
        missing = [hint for hint, version in zip(waiting, known, strict=True) if version != str(hint.version)]
        announce(self.redis, self.roster, missing)
        self.state.count(Count.REQUEUED, len(missing))

    def _dead(self) -> None:
        """Dead letters of a time when Redis was away, or that it has forgotten."""
        rows = self.database.read(lambda tx: hints.recent_dead(tx, DEAD_WITHIN, MOST_DEAD))
        if rows:
            self.state.count(Count.DEAD_LETTERS, self.redis.bury([letter(row) for row in rows]))
