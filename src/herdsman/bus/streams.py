"""What a replica asks of a server of streams: Redis, or one that pretends to be it. No library is needed for this."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from herdsman.bus.entries import Entry, Letter, Mirror
from herdsman.bus.names import Names, Stream
from herdsman.core.hints import Hint

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

    def bury(self, letters: Sequence[Letter]) -> int:
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
