"""Announces queued jobs after the commit, and hears what any replica announces.

It never delays or fails a caller: the comparison with the database repeats what was lost.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from threading import Event, Lock

from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.fleet.recording import Cycle
from herdsman.ids import PoolId
from herdsman.ports import Clock, Threads
from herdsman.redis import sql
from herdsman.redis.streams import (
    PAGE,
    BusState,
    BusUnavailable,
    Count,
    GroupMissing,
    Hint,
    Mirror,
    Names,
    Read,
    Stream,
    Streams,
    StreamSpent,
)

ROOM = 10_000
MOST_HELD = 10_000
"""Of one stream. Beyond it an entry is dropped once it was read: its job is in the database, and is found there."""
_MOST_PAGES = 20
_NEW = "$"
_OFTEN = timedelta(seconds=1)
_SHORTEST = timedelta(milliseconds=20)


class JobStreams:
    """Which streams of jobs there are: one that pools share, and one for each pool that wants its own."""

    def __init__(self, names: Names, database: Database) -> None:
        self._names = names
        self._database = database
        self._isolated: frozenset[PoolId] = frozenset()

    def refresh(self) -> Sequence[Stream]:
        """Streams that nobody needs any more: their pools share the common one now."""
        found = frozenset(self._database.read(sql.isolated_pools))
        left, self._isolated = self._isolated - found, found
        return [self._names.jobs_of(pool) for pool in left]

    @property
    def streams(self) -> Sequence[Stream]:
        return [self._names.jobs, *(self._names.jobs_of(pool) for pool in sorted(self._isolated))]

    def stream_of(self, pool: PoolId) -> Stream:
        return self._names.jobs_of(pool) if pool in self._isolated else self._names.jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHooks:
    wake: Callable[[], None]
    """Jobs were queued elsewhere."""
    ring: Callable[[], None]
    """Jobs were queued here."""
    leads: Callable[[], bool] = lambda: False
    tick: Callable[[], Cycle] | None = None
    """One cycle of the control loop, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    claim_idle: timedelta = timedelta(seconds=60)
    reclaim: timedelta = timedelta(seconds=30)
    resync: timedelta = timedelta(seconds=10)
    look: timedelta = _OFTEN

    @property
    def settle(self) -> timedelta:
        """Often enough that what we hold never looks idle."""
        return max(_SHORTEST, min(self.look, self.claim_idle / 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class BusContext:
    """What the loops of one replica's streams share."""

    redis: Streams
    services: Services
    roster: JobStreams
    state: BusState
    clock: Clock
    threads: Threads
    rhythm: Intervals
    hooks: ReplicaHooks
    lost: Event
    """Something was queued or lost: do not wait for the next comparison with the database."""
    ordered: Event
    """Something was asked of the leader: do not wait for its next cycle."""
    ingested: Event
    """Somebody submitted through a stream."""


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """Something else that is said: to everybody, or, with a group, to the one who will do it."""

    stream: str | Stream
    fields: Mapping[str, str]


Said = Hint | StreamMessage | Mirror


class Announcer:
    def __init__(self, context: BusContext) -> None:
        self._context = context
        self._news = context.threads.event()
        self._lock = Lock()
        self._queue: deque[Said] = deque()

    def tell(self, said: Sequence[Said]) -> None:
        with self._lock:
            room = max(0, ROOM - len(self._queue))
            self._queue.extend(said[:room])
        self._news.set()
        if len(said) > room:
            self._lost(len(said) - room)

    def turn(self) -> None:
        if not self._queue:
            self._news.wait(self._context.rhythm.look.total_seconds() / 2)
        # Before the look: what is queued after it rings again.
        self._news.clear()
        with self._lock:
            batch = [self._queue.popleft() for _ in range(min(PAGE, len(self._queue)))]
        redis = self._context.redis
        try:
            hints = [each for each in batch if isinstance(each, Hint)]
            announce(redis, self._context.roster, hints)
            self._context.state.count(Count.PUBLISHED, len(hints))
            redis.reflect([each for each in batch if isinstance(each, Mirror)])
            for word in (each for each in batch if isinstance(each, StreamMessage)):
                if isinstance(word.stream, Stream):
                    redis.order(word.stream, word.fields)
                else:
                    redis.say(word.stream, word.fields)
        except BusUnavailable:
            self._lost(len(batch))
            raise

    def _lost(self, number: int) -> None:
        if number:
            self._context.state.count(Count.DROPPED, number)
            self._context.lost.set()


def announce(redis: Streams, roster: JobStreams, hints: Sequence[Hint]) -> None:
    """Each in the stream of its pool."""

    def stream_of(hint: Hint) -> Stream:
        return roster.stream_of(hint.pool)

    for stream, some in groupby(sorted(hints, key=lambda hint: stream_of(hint).name), key=stream_of):
        try:
            redis.announce(stream, [*some])
        except StreamSpent:  # nothing but hints is in it, and they can be given again
            redis.remove(stream)
            raise


class Listener:
    """Hears what any replica announces and wakes the workers that wait here.

    A group hands each entry to one replica, which may have no worker that waits. So every replica hears every entry
    (XREAD), and the group (XREADGROUP) says which one looks after it until its job has ended.
    """

    def __init__(self, context: BusContext) -> None:
        self._context = context
        self._heard: dict[str, str] = {}
        self._taken: dict[str, int] = {}
        self.held: Mapping[str, int] = {}
        """How many entries of each stream this replica held at the last count."""

    def counted(self, held: Mapping[str, int]) -> None:
        self.held, self._taken = held, {}

    def turn(self) -> None:
        context, redis = self._context, self._context.redis
        streams, names = context.roster.streams, redis.names
        every = [*(stream.name for stream in streams), names.control, names.preloads.name, names.ingest.name]
        heard = redis.listen({name: self._heard.get(name, _NEW) for name in every})
        # After a silence from here on: a stream that began anew may count from below.
        last = {name: entries[-1][0] for name, entries in heard.items()}
        self._heard = {**self._heard, **last} if heard else {}
        taken = {stream.name: self._take(stream) for stream in streams}
        # Our own words have rung here already, and neither orders nor submissions are for workers.
        quiet = (names.preloads.name, names.ingest.name)
        news = [*taken.values(), *(entries for name, entries in heard.items() if name not in quiet)]
        if any(fields.get("by") != redis.consumer for entries in news for _, fields in entries):
            context.hooks.wake()
        if names.control in heard or names.preloads.name in heard:
            context.ordered.set()
        if names.ingest.name in heard:
            context.ingested.set()

    def _take(self, stream: Stream) -> Read:
        redis, found = self._context.redis, list[tuple[str, Mapping[str, str]]]()
        try:
            for _ in range(_MOST_PAGES):
                page = redis.take(stream)
                taken = self._taken.get(stream.name, 0)
                room = max(0, MOST_HELD - taken - self.held.get(stream.name, 0))
                beyond = [entry.id for entry in page[room:]]
                redis.settle(stream, beyond)
                self._context.state.count(Count.LET_GO, len(beyond))
                self._taken[stream.name] = taken + len(page) - len(beyond)
                found += [(entry.id, entry.fields) for entry in page]
                if len(page) < PAGE:
                    break
        except GroupMissing:
            redis.make_group(stream)
            self._context.lost.set()
        return found
