"""Entries that no job of ours stands behind: kept in sight as dead letters, and on record."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from herdsman.bus.entries import Entry, Letter
from herdsman.bus.streams import Streams
from herdsman.control.streams.state import BusState, Count
from herdsman.core.body import clean
from herdsman.db.connection import Database
from herdsman.db.errors import Duplicate
from herdsman.ports import Clock
from herdsman.store import hints

log = structlog.get_logger()

MOST_ROWS = 100
"""Audit rows in a minute. Who floods us with entries must not fill the database with them."""
_MINUTE_S = 60.0


@dataclass
class Quarantine:
    redis: Streams
    database: Database
    state: BusState
    clock: Clock
    _minute: float = float("-inf")
    _rows: int = 0

    def put(self, entries: Sequence[tuple[Entry, str]]) -> None:
        """Each with the reason. The row first: what fails after it is done again, and adds none."""
        for entry, why in entries:
            self._record(entry, why)
        self.redis.bury([_letter(entry, why) for entry, why in entries])
        self.state.count(Count.QUARANTINED, len(entries))

    def _record(self, entry: Entry, why: str) -> None:
        if not self._allowed():
            return
        job_id = entry.fields.get("job_id", "")
        log.warning("streams.quarantined", stream=entry.stream.name, entry=entry.id, why=why)
        try:
            self.database.transact(
                lambda tx: hints.record_quarantined(tx, entry.stream.name, entry.id, job_id, why)
            )
        except Duplicate:  # on record already
            return

    def _allowed(self) -> bool:
        now = self.clock.monotonic()
        if now - self._minute >= _MINUTE_S:
            self._minute, self._rows = now, 0
        self._rows += 1
        return self._rows <= MOST_ROWS


def _letter(entry: Entry, why: str) -> Letter:
    job_id = clean(entry.fields.get("job_id", ""), 255)
    return Letter(job_id=job_id, origin_id=entry.id, last_error=why, entry=entry)
