"""What a replica does with streams of jobs, each in a loop of its own: announce, listen, and keep.

Jobs are announced after the commit. That never delays or fails a caller: the comparison with the database repeats what
was lost. Entries are settled, quarantined or announced again as the rows of their jobs say: every replica keeps its own,
and the leader those of replicas that are gone.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from threading import Event, Lock

import structlog

from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.db.errors import Duplicate
from herdsman.fleet.recording import Cycle
from herdsman.ids import PoolId
from herdsman.json_text import clean
from herdsman.ports import Clock, Threads
from herdsman.redis import sql, streams
from herdsman.redis.streams import judge
from herdsman.states import HELD, JOB, JobStatus

log = structlog.get_logger()

ROOM = 10_000
MOST_HELD = 10_000
"""Of one stream. Beyond it an entry is dropped once it was read: its job is in the database, and is found there."""
_MOST_PAGES = 20
_NEW = "$"
MOST_ROWS = 100
"""Audit rows in a minute. Who floods us with entries must not fill the database with them."""
_MINUTE_S = 60.0
MOST_PAGES = 10
"""In one pass over one stream; the next pass goes on from there."""
_START = "0-0"
FIRST = 1000
"""Jobs of each pool: those that will be claimed next. The others come nearer, and are announced then."""
DEAD_WITHIN = timedelta(days=1)
MOST_DEAD = 1000
_FORGET = timedelta(minutes=10)
"""After so long a replica that holds nothing is taken to be gone; it only loses its name in a list."""
_OFTEN = timedelta(seconds=1)
_SHORTEST = timedelta(milliseconds=20)


class JobStreams:
    """Which streams of jobs there are: one that pools share, and one for each pool that wants its own."""

    def __init__(self, names: streams.Names, database: Database) -> None:
        self._names = names
        self._database = database
        self._isolated: frozenset[PoolId] = frozenset()

    def refresh(self) -> Sequence[streams.Stream]:
        """Streams that nobody needs any more: their pools share the common one now."""
        found = frozenset(self._database.read(sql.isolated_pools))
        left, self._isolated = self._isolated - found, found
        return [self._names.jobs_of(pool) for pool in left]

    def stream_of(self, pool: PoolId) -> streams.Stream:
        return self._names.jobs_of(pool) if pool in self._isolated else self._names.jobs

    @property
    def streams(self) -> Sequence[streams.Stream]:
        return [self._names.jobs, *(self._names.jobs_of(pool) for pool in sorted(self._isolated))]


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

    redis: streams.Streams
    services: Services
    job_streams: JobStreams
    state: streams.BusState
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

    stream: str | streams.Stream
    fields: Mapping[str, str]


Said = streams.Hint | StreamMessage | streams.Mirror


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
            batch = [self._queue.popleft() for _ in range(min(streams.PAGE, len(self._queue)))]
        redis = self._context.redis
        try:
            hints = [each for each in batch if isinstance(each, streams.Hint)]
            announce(redis, self._context.job_streams, hints)
            self._context.state.count(streams.Count.PUBLISHED, len(hints))
            redis.reflect([each for each in batch if isinstance(each, streams.Mirror)])
            for word in (each for each in batch if isinstance(each, StreamMessage)):
                if isinstance(word.stream, streams.Stream):
                    redis.order(word.stream, word.fields)
                else:
                    redis.say(word.stream, word.fields)
        except streams.BusUnavailable:
            self._lost(len(batch))
            raise

    def _lost(self, number: int) -> None:
        if number:
            self._context.state.count(streams.Count.DROPPED, number)
            self._context.lost.set()


def announce(redis: streams.Streams, job_streams: JobStreams, hints: Sequence[streams.Hint]) -> None:
    """Each in the stream of its pool."""

    def stream_of(hint: streams.Hint) -> streams.Stream:
        return job_streams.stream_of(hint.pool)

    for stream, some in groupby(sorted(hints, key=lambda hint: stream_of(hint).name), key=stream_of):
        try:
            redis.announce(stream, [*some])
        except streams.StreamSpent:  # nothing but hints is in it, and they can be given again
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
        job_streams, names = context.job_streams.streams, redis.names
        every = [*(stream.name for stream in job_streams), names.control, names.preloads.name, names.ingest.name]
        heard = redis.listen({name: self._heard.get(name, _NEW) for name in every})
        # After a silence from here on: a stream that began anew may count from below.
        last = {name: entries[-1][0] for name, entries in heard.items()}
        self._heard = {**self._heard, **last} if heard else {}
        taken = {stream.name: self._take(stream) for stream in job_streams}
        # Our own words have rung here already, and neither orders nor submissions are for workers.
        quiet = (names.preloads.name, names.ingest.name)
        news = [*taken.values(), *(entries for name, entries in heard.items() if name not in quiet)]
        if any(fields.get("by") != redis.consumer for entries in news for _, fields in entries):
            context.hooks.wake()
        if names.control in heard or names.preloads.name in heard:
            context.ordered.set()
        if names.ingest.name in heard:
            context.ingested.set()

    def _take(self, stream: streams.Stream) -> streams.Read:
        redis, found = self._context.redis, list[tuple[str, Mapping[str, str]]]()
        try:
            for _ in range(_MOST_PAGES):
                page = redis.take(stream)
                taken = self._taken.get(stream.name, 0)
                room = max(0, MOST_HELD - taken - self.held.get(stream.name, 0))
                beyond = [entry.id for entry in page[room:]]
                redis.settle(stream, beyond)
                self._context.state.count(streams.Count.LET_GO, len(beyond))
                self._taken[stream.name] = taken + len(page) - len(beyond)
                found += [(entry.id, entry.fields) for entry in page]
                if len(page) < streams.PAGE:
                    break
        except streams.GroupMissing:
            redis.make_group(stream)
            self._context.lost.set()
        return found


@dataclass
class Quarantine:
    context: BusContext
    _minute: float = float("-inf")
    _rows: int = 0

    def put(self, entries: Sequence[tuple[streams.Entry, str]]) -> None:
        """Each with the reason. The row first: what fails after it is done again, and adds none."""
        for entry, reason in entries:
            self._record(entry, reason)
        self.context.redis.add_dead_letters(
            [
                streams.DeadLetter(
                    job_id=clean(entry.fields.get("job_id", ""), 255),
                    origin_id=entry.id,
                    last_error=reason,
                    entry=entry,
                )
                for entry, reason in entries
            ]
        )
        self.context.state.count(streams.Count.QUARANTINED, len(entries))

    def _record(self, entry: streams.Entry, reason: str) -> None:
        now = self.context.clock.monotonic()
        if now - self._minute >= _MINUTE_S:
            self._minute, self._rows = now, 0
        self._rows += 1
        if self._rows > MOST_ROWS:
            return
        job_id = entry.fields.get("job_id", "")
        log.warning("streams.quarantined", stream=entry.stream.name, entry=entry.id, reason=reason)
        try:
            self.context.services.database.transact(
                lambda tx: sql.record_quarantined(tx, entry.stream.name, entry.id, job_id, reason)
            )
        except Duplicate:  # on record already
            return


class Keeper:
    def __init__(self, context: BusContext, listener: Listener, quarantine: Quarantine) -> None:
        self._context = context
        self._redis, self._state, self._job_streams = context.redis, context.state, context.job_streams
        self._database = context.services.database
        self._listener = listener
        self._quarantine = quarantine
        self.known_server = False
        """False again after each fault: another server may answer at the same address."""
        self._last: dict[str, float] = {}
        self._cursors: dict[str, str] = {}

    def turn(self) -> None:
        context, pause = self._context, self._context.rhythm.settle
        if context.clock.monotonic() - self._last.get("resync", float("-inf")) < _OFTEN.total_seconds():
            context.clock.sleep(pause)  # a keeper that is poked all the time compares once in a while
        else:
            context.lost.wait(pause.total_seconds())
        if not self.known_server:
            self._redis.check()
            self.known_server = True
        left = self._job_streams.refresh() if self._due("job_streams", _OFTEN) else ()
        for stream in self._job_streams.streams:
            self._keep(stream)
        self._compare()
        if not context.hooks.leads():
            return
        for stream in left:
            self._redis.remove(stream)
        if self._due("reclaim", context.rhythm.reclaim):
            # Entries of replicas that are gone. A job that a worker holds is not touched: its claim is in the database.
            for stream in self._job_streams.streams:
                for page in self._redis.take_over(stream, context.rhythm.claim_idle):
                    states = self._settle(stream, page)
                    kept = sum(number for state, number in states.items() if state in HELD)
                    self._state.count(streams.Count.KEPT, kept)
                    self._state.count(streams.Count.RECLAIMED, sum(states.values()) - kept)
                    if states.get(JobStatus.PENDING):
                        context.hooks.wake()
        if self._due("tidy", context.rhythm.resync):
            for stream in (*self._job_streams.streams, self._redis.names.preloads):
                self._redis.trim(stream)
                self._redis.forget_consumers(stream, _FORGET)

    def _keep(self, stream: streams.Stream) -> None:
        """The entries that this replica holds, as many as one pass may look at."""
        try:
            for _ in range(MOST_PAGES):
                entries = self._redis.mine(stream, self._cursors.get(stream.name, _START))
                self._cursors[stream.name] = entries[-1].id if len(entries) == streams.PAGE else _START
                if entries:
                    self._settle(stream, entries)
                if len(entries) < streams.PAGE:
                    break
            size = self._redis.size(stream)
        except streams.GroupMissing:
            self._redis.make_group(stream)
            self._context.lost.set()
            return
        current = {each.name for each in self._job_streams.streams}
        sizes = {name: each for name, each in self._state.sizes.items() if name in current}
        self._state.sizes = {**sizes, stream.name: size}
        self._listener.counted({name: each.mine for name, each in self._state.sizes.items()})

    def _settle(self, stream: streams.Stream, entries: Sequence[streams.Entry]) -> Mapping[JobStatus | None, int]:
        """How many jobs of these entries are in which state; None counts what is no job."""
        ids = sorted({each for entry in entries if streams.possible(each := entry.fields.get("job_id", ""))})
        known = self._database.read(lambda tx: sql.look_up(tx, ids))
        found = [(entry, known.get(entry.fields.get("job_id", ""))) for entry in entries]
        gone = [entry.id for entry, _ in found if not entry.fields]
        real = [(entry, row, judge(row)) for entry, row in found if entry.fields]
        done = [entry.id for entry, _, verdict in real if verdict is streams.Verdict.SETTLE]
        self._redis.settle(stream, [*gone, *done])
        self._state.count(streams.Count.SETTLED, len(done))
        dead = [letter(row, entry) for entry, row, verdict in real if row and verdict is streams.Verdict.DEAD_LETTER]
        if dead:
            self._state.count(streams.Count.DEAD_LETTERS, self._redis.add_dead_letters(dead))
        made_up = [entry for entry, _, verdict in real if verdict is streams.Verdict.QUARANTINE]
        if made_up:
            nameless = "the entry names no job: it has no field job_id"
            named = ((entry, entry.fields.get("job_id")) for entry in made_up)
            self._quarantine.put(
                [(entry, nameless if name is None else f"there is no job {name[:200]!r}") for entry, name in named]
            )
        self._redis.reflect(
            [
                streams.Mirror(
                    row.job_id,
                    {"status": row.status, **(row.service if row.status in HELD else {})},
                    ended=row.status in JOB.terminal,
                )
                for _, row, _ in real
                if row and row.status is not JobStatus.PENDING
            ]
        )
        return Counter[JobStatus | None](row.status if row else None for _, row, _ in real)

    def _compare(self) -> None:
        """Announces what waits and Redis does not know of. Done by whoever noticed that something was lost; otherwise
        by the leader, from time to time."""
        context = self._context
        asked = context.lost.is_set() and self._due("asked", _OFTEN)
        if not asked and not (context.hooks.leads() and self._due("resync", context.rhythm.resync)):
            return
        context.lost.clear()
        self._last["resync"] = context.clock.monotonic()
        compared = False
        try:
            for pool in self._database.read(sql.waiting_pools):
                first = self._database.read(lambda tx, pool=pool: sql.waiting(tx, pool, FIRST))
                for begin in range(0, len(first), streams.PAGE):
                    page = first[begin : begin + streams.PAGE]
                    known = self._redis.announced([hint.job_id for hint in page])
                    missing = [hint for hint, last in zip(page, known, strict=True) if last != str(hint.version)]
                    announce(self._redis, self._job_streams, missing)
                    self._state.count(streams.Count.REQUEUED, len(missing))
            # Dead letters of a time when Redis was away, or that it has forgotten.
            rows = self._database.read(lambda tx: sql.recent_dead(tx, DEAD_WITHIN, MOST_DEAD))
            if rows:
                dead = self._redis.add_dead_letters([letter(row) for row in rows])
                self._state.count(streams.Count.DEAD_LETTERS, dead)
            compared = True
        finally:
            if asked and not compared:
                context.lost.set()
        self._state.dead = self._redis.length(self._redis.names.dead)

    def _due(self, what: str, interval: timedelta) -> bool:
        now = self._context.clock.monotonic()
        due = what not in self._last or now - self._last[what] >= interval.total_seconds()
        if due:
            self._last[what] = now
        return due


def letter(row: streams.Known, entry: streams.Entry | None = None) -> streams.DeadLetter:
    return streams.DeadLetter(
        job_id=row.job_id,
        version=row.version,
        origin_id="" if entry is None else entry.id,
        attempts=row.attempts,
        last_error=row.last_error or "",
        entry=entry,
    )
