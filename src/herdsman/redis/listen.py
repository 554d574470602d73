"""Hears what any replica announces and wakes the workers that wait here.

A group hands each entry to one replica, which may have no worker that waits. So every replica hears every entry (XREAD),
and the group (XREADGROUP) says which one looks after it until its job has ended.
"""

from collections.abc import Callable, Mapping, Sequence

from herdsman.redis.announce import JobStreams
from herdsman.redis.names import Entry, Stream
from herdsman.redis.streams import PAGE, BusState, Count, GroupMissing, Read, Streams

MOST_HELD = 10_000
"""Of one stream. Beyond it an entry is dropped once it was read: its job is in the database, and is found there."""
_MOST_PAGES = 20
_NEW = "$"


class Listener:
    def __init__(
        self,
        redis: Streams,
        roster: JobStreams,
        state: BusState,
        *,
        wake: Callable[[], None],
        on_order: Callable[[], None],
        on_ingest: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._redis = redis
        self._roster = roster
        self._state = state
        self._wake = wake
        self._on_order = on_order
        self._on_ingest = on_ingest
        self._on_lost = on_lost
        self._heard: dict[str, str] = {}
        self._taken: dict[str, int] = {}
        self.held: Mapping[str, int] = {}
        """How many entries of each stream this replica held at the last count."""

    def counted(self, held: Mapping[str, int]) -> None:
        self.held, self._taken = held, {}

    def turn(self) -> None:
        streams = self._roster.streams
        names = self._redis.names
        every = [*(stream.name for stream in streams), names.control, names.preloads.name, names.ingest.name]
        heard = self._redis.listen({name: self._heard.get(name, _NEW) for name in every})
        # After a silence from here on: a stream that began anew may count from below.
        last = {name: entries[-1][0] for name, entries in heard.items()}
        self._heard = {**self._heard, **last} if heard else {}
        taken = {stream.name: self._take(stream) for stream in streams}
        if self._concern_us(heard) or self._concern_us(taken):
            self._wake()
        if names.control in heard or names.preloads.name in heard:
            self._on_order()
        if names.ingest.name in heard:
            self._on_ingest()

    def _concern_us(self, heard: Mapping[str, Read]) -> bool:
        """Our own words have rung here already."""
        mine = self._redis.consumer
        quiet = (self._redis.names.preloads.name, self._redis.names.ingest.name)
        found = [fields for name, entries in heard.items() if name not in quiet for _, fields in entries]
        return any(fields.get("by") != mine for fields in found)

    def _take(self, stream: Stream) -> Read:
        found: list[tuple[str, Mapping[str, str]]] = []
        try:
            for _ in range(_MOST_PAGES):
                page = self._redis.take(stream)
                self._hold(stream, page)
                found += [(entry.id, entry.fields) for entry in page]
                if len(page) < PAGE:
                    break
        except GroupMissing:
            self._redis.make_group(stream)
            self._on_lost()
        return found

    def _hold(self, stream: Stream, page: Sequence[Entry]) -> None:
        taken = self._taken.get(stream.name, 0)
        room = max(0, MOST_HELD - taken - self.held.get(stream.name, 0))
        beyond = [entry.id for entry in page[room:]]
        self._redis.settle(stream, beyond)
        self._state.count(Count.LET_GO, len(beyond))
        self._taken[stream.name] = taken + len(page) - len(beyond)
