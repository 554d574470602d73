"""What becomes of entries: settled, quarantined, or announced again, as the rows of their jobs say."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from herdsman.db.connection import Database
from herdsman.db.errors import Duplicate
from herdsman.json_text import clean
from herdsman.ports import Clock
from herdsman.redis import sql
from herdsman.redis.announce import JobStreams, announce
from herdsman.redis.hints import Known, Verdict, judge, possible
from herdsman.redis.names import DeadLetter, Entry, Mirror, Stream
from herdsman.redis.streams import PAGE, BusState, Count, Streams
from herdsman.states import HELD, JOB, JobState

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
        self.redis.add_dead_letters(
            [
                DeadLetter(
                    job_id=clean(entry.fields.get("job_id", ""), 255),
                    origin_id=entry.id,
                    last_error=why,
                    entry=entry,
                )
                for entry, why in entries
            ]
        )
        self.state.count(Count.QUARANTINED, len(entries))

    def _record(self, entry: Entry, why: str) -> None:
        now = self.clock.monotonic()
        if now - self._minute >= _MINUTE_S:
            self._minute, self._rows = now, 0
        self._rows += 1
        if self._rows > MOST_ROWS:
            return
        job_id = entry.fields.get("job_id", "")
        log.warning("streams.quarantined", stream=entry.stream.name, entry=entry.id, why=why)
        try:
            self.database.transact(
                lambda tx: sql.record_quarantined(tx, entry.stream.name, entry.id, job_id, why)
            )
        except Duplicate:  # on record already
            return


MOST_PAGES = 10
"""In one pass over one stream; the next pass goes on from there."""
_START = "0-0"


@dataclass
class Settler:
    redis: Streams
    database: Database
    state: BusState
    quarantine: Quarantine
    _cursors: dict[str, str] = field(default_factory=dict[str, str])

    def pass_over(self, stream: Stream) -> None:
        """The entries that this replica holds, as many as one pass may look at."""
        for _ in range(MOST_PAGES):
            entries = self.redis.mine(stream, self._cursors.get(stream.name, _START))
            self._cursors[stream.name] = entries[-1].id if len(entries) == PAGE else _START
            if entries:
                self.settle(stream, entries)
            if len(entries) < PAGE:
                return

    def settle(self, stream: Stream, entries: Sequence[Entry]) -> Mapping[JobState | None, int]:
        """How many jobs of these entries are in which state; None counts what is no job."""
        ids = sorted({each for entry in entries if possible(each := entry.fields.get("job_id", ""))})
        known = self.database.read(lambda tx: sql.look_up(tx, ids))
        found = [(entry, known.get(entry.fields.get("job_id", ""))) for entry in entries]
        gone = [entry.id for entry, _ in found if not entry.fields]
        real = [(entry, row, judge(row)) for entry, row in found if entry.fields]
        done = [entry.id for entry, _, verdict in real if verdict is Verdict.SETTLE]
        self.redis.settle(stream, [*gone, *done])
        self.state.count(Count.SETTLED, len(done))
        dead = [letter(row, entry) for entry, row, verdict in real if row and verdict is Verdict.DEAD_LETTER]
        if dead:
            self.state.count(Count.DEAD_LETTERS, self.redis.add_dead_letters(dead))
        made_up = [entry for entry, _, verdict in real if verdict is Verdict.QUARANTINE]
        if made_up:
            self.quarantine.put([(entry, _why(entry)) for entry in made_up])
        self.redis.reflect(
            [
                Mirror(
                    row.job_id,
                    {"status": row.state, **(row.service if row.state in HELD else {})},
                    ended=row.state in JOB.terminal,
                )
                for _, row, _ in real
                if row and row.state is not JobState.PENDING
            ]
        )
        return Counter[JobState | None](row.state if row else None for _, row, _ in real)


def letter(row: Known, entry: Entry | None = None) -> DeadLetter:
    return DeadLetter(
        job_id=row.job_id,
        version=row.version,
        origin_id="" if entry is None else entry.id,
        attempts=row.attempts,
        last_error=row.last_error or "",
        entry=entry,
    )


def _why(entry: Entry) -> str:
    if "job_id" not in entry.fields:
        return "the entry names no job: it has no field job_id"
    return f"there is no job {entry.fields['job_id'][:200]!r}"


FIRST = 1000
"""Jobs of each pool: those that will be claimed next. The others come nearer, and are announced then."""
DEAD_WITHIN = timedelta(days=1)
MOST_DEAD = 1000


@dataclass(frozen=True, slots=True)
class Resync:
    redis: Streams
    database: Database
    roster: JobStreams
    state: BusState

    def run(self) -> None:
        for pool in self.database.read(sql.waiting_pools):
            first = self.database.read(lambda tx, pool=pool: sql.waiting(tx, pool, FIRST))
            for begin in range(0, len(first), PAGE):
                page = first[begin : begin + PAGE]
                known = self.redis.announced([hint.job_id for hint in page])
                missing = [hint for hint, last in zip(page, known, strict=True) if last != str(hint.version)]
                announce(self.redis, self.roster, missing)
                self.state.count(Count.REQUEUED, len(missing))
        # Dead letters of a time when Redis was away, or that it has forgotten.
        rows = self.database.read(lambda tx: sql.recent_dead(tx, DEAD_WITHIN, MOST_DEAD))
        if rows:
            self.state.count(Count.DEAD_LETTERS, self.redis.add_dead_letters([letter(row) for row in rows]))
