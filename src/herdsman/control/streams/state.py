"""How the streams are doing: what is wrong now, and what was counted so far."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from threading import Lock

import structlog

from herdsman.bus.streams import Size

log = structlog.get_logger()


class Count(StrEnum):
    PUBLISHED = "published"
    DROPPED = "dropped"
    REQUEUED = "requeued"
    """Announced once more, because Redis did not know of it or it waits again."""
    RECLAIMED = "reclaimed"
    """Taken over from a replica that is gone, and not held by a worker."""
    KEPT = "kept"
    """Taken over, while a worker that lives holds the job: nothing was done about it."""
    SETTLED = "settled"
    LET_GO = "let_go"
    DEAD_LETTERS = "dead_letters"
    QUARANTINED = "quarantined"
    INGESTED = "ingested"
    FAULTS = "faults"


class BusState:
    def __init__(self) -> None:
        self._lock = Lock()
        self._faults: dict[str, str] = {}
        self._counts: Counter[Count] = Counter()
        self.sizes: Mapping[str, Size] = {}
        """Of each stream of jobs, as it was at the last look."""
        self.dead = 0

    @property
    def fault(self) -> str | None:
        """What is wrong now; None when all is well."""
        with self._lock:
            return next(iter(self._faults.values()), None)

    @property
    def counts(self) -> Mapping[Count, int]:
        with self._lock:
            return {each: self._counts[each] for each in Count}

    def count(self, what: Count, number: int = 1) -> None:
        with self._lock:
            self._counts[what] += number

    def failed(self, loop: str, reason: str) -> None:
        """Said once, however many tries fail after it."""
        with self._lock:
            news = not self._faults
            self._faults[loop] = reason
            self._counts[Count.FAULTS] += 1
        if news:
            log.warning("streams.away", loop=loop, reason=reason, meanwhile="the database is polled")

    def fine(self, loop: str) -> None:
        with self._lock:
            news = self._faults.pop(loop, None) is not None and not self._faults
        if news:
            log.info("streams.back", loop=loop)
