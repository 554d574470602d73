"""Announces queued jobs after the commit. It never delays or fails a caller: the resync repeats what was lost."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from threading import Lock

from herdsman.db.connection import Database
from herdsman.ids import PoolId
from herdsman.ports import SystemThreads, Threads
from herdsman.redis import sql
from herdsman.redis.hints import Hint
from herdsman.redis.names import Mirror, Names, Stream
from herdsman.redis.streams import PAGE, BusState, BusUnavailable, Count, Streams, StreamSpent


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


ROOM = 10_000
_WAIT = timedelta(milliseconds=500)


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """Something else that is said: to everybody, or, with a group, to the one who will do it."""

    stream: str | Stream
    fields: Mapping[str, str]


Said = Hint | StreamMessage | Mirror


class Announcer:
    def __init__(
        self,
        redis: Streams,
        roster: JobStreams,
        state: BusState,
        on_lost: Callable[[], None],
        threads: Threads | None = None,
        wait: timedelta = _WAIT,
    ) -> None:
        self._redis = redis
        self._roster = roster
        self._state = state
        self._on_lost = on_lost
        self._wait = wait
        self._news = (threads or SystemThreads()).event()
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
            self._news.wait(self._wait.total_seconds())
        # Before the look: what is queued after it rings again.
        self._news.clear()
        with self._lock:
            batch = [self._queue.popleft() for _ in range(min(PAGE, len(self._queue)))]
        try:
            self._publish(batch)
        except BusUnavailable:
            self._lost(len(batch))
            raise

    def _publish(self, batch: Sequence[Said]) -> None:
        hints = [each for each in batch if isinstance(each, Hint)]
        announce(self._redis, self._roster, hints)
        self._state.count(Count.PUBLISHED, len(hints))
        self._redis.reflect([each for each in batch if isinstance(each, Mirror)])
        for word in (each for each in batch if isinstance(each, StreamMessage)):
            if isinstance(word.stream, Stream):
                self._redis.order(word.stream, word.fields)
            else:
                self._redis.say(word.stream, word.fields)

    def _lost(self, number: int) -> None:
        if number:
            self._state.count(Count.DROPPED, number)
            self._on_lost()


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
