"""What a replica asks of a stream server, and how that is going. The library `redis` is not needed for this."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from threading import Lock
from typing import Protocol

import structlog

from herdsman.errors import HerdsmanError
from herdsman.redis.hints import Hint
from herdsman.redis.names import DeadLetter, Entry, Mirror, Names, Stream

log = structlog.get_logger()


class BusUnavailable(HerdsmanError):
    """Redis did not answer, or would not do it: away, loading, read-only, out of memory, unable to save."""


class GroupMissing(BusUnavailable):
    """The stream or its group is gone: somebody deleted it, or the server has forgotten everything."""


class StreamSpent(BusUnavailable):
    """Somebody used up the ids of the stream, so that nothing can be added any more."""


class NotAllowed(BusUnavailable):
    """The account may not do this."""


PAGE = 500

Read = Sequence[tuple[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Size:
    length: int
    pending: int
    mine: int
    """How many of those pending this replica holds."""


class Streams(Protocol):
    """Each word may fail with `BusUnavailable`, and may then have been heard all the same.

    `GroupMissing` where the stream or its group is gone.
    """

    @property
    def names(self) -> Names: ...

    @property
    def consumer(self) -> str: ...

    def check(self) -> None:
        """`BusUnavailable` for a server that is too old."""
        ...

    def disconnect(self) -> None:
        """The next word is said on a fresh connection, which may lead to another server."""
        ...

    def close(self) -> None: ...

    def make_group(self, stream: Stream) -> bool:
        """At `0`: what came before the group is meant for it too. False when it was there."""
        ...

    def remove(self, stream: Stream) -> None: ...

    def announce(self, stream: Stream, hints: Sequence[Hint]) -> None:
        """One entry for each, and then its mirror says so: an entry too many is better than one too few.

        `StreamSpent` when nothing can be added to this stream any more.
        """
        ...

    def announced(self, job_ids: Sequence[str]) -> list[str | None]:
        """The version of each job that was announced last, as far as the server remembers."""
        ...

    def reflect(self, mirrors: Sequence[Mirror]) -> None: ...

    def say(self, name: str, fields: Mapping[str, str]) -> None:
        """To a stream that everybody reads, and that nobody acknowledges."""
        ...

    def order(self, stream: Stream, fields: Mapping[str, str]) -> None:
        """To a stream whose entries wait until somebody has acknowledged them."""
        ...

    def listen(self, after: Mapping[str, str]) -> Mapping[str, Read]:
        """What anybody added to these streams after these ids; empty when nothing came in time."""
        ...

    def take(self, stream: Stream) -> list[Entry]:
        """Entries that no replica was given yet; they are ours from now on."""
        ...

    def mine(self, stream: Stream, after: str) -> list[Entry]:
        """A page of the entries that we hold. Being looked at they are fresh again, so nobody takes them over."""
        ...

    def take_over(self, stream: Stream, idle: timedelta) -> Iterator[list[Entry]]:
        """Page by page, the entries that nobody has looked at for so long: they are ours from now on."""
        ...

    def settle(self, stream: Stream, ids: Sequence[str]) -> None:
        """Acknowledged and gone, or neither."""
        ...

    def add_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        """Announces those that were not yet; each with the end of its entry, or neither. How many were new."""
        ...

    def trim(self, stream: Stream) -> None:
        """Removes what every group has been given and acknowledged, and never what somebody still holds (S4)."""
        ...

    def forget_consumers(self, stream: Stream, idle: timedelta) -> None:
        """Those that hold nothing and have said nothing for so long: with what one holds, its name is kept."""
        ...

    def size(self, stream: Stream) -> Size: ...

    def length(self, name: str) -> int: ...


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
