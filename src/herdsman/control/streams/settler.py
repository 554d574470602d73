"""What becomes of entries: the rows of their jobs say it, a page of entries with one query."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from herdsman.bus.entries import Entry, Letter, Mirror
from herdsman.bus.names import Stream
from herdsman.bus.streams import PAGE, Streams
from herdsman.control.streams.quarantine import Quarantine
from herdsman.control.streams.state import BusState, Count
from herdsman.core.hints import Known, Verdict, judge, possible
from herdsman.core.states import HELD, JOB, JobState
from herdsman.db.connection import Database
from herdsman.store import hints

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
        ids = {entry.fields.get("job_id", "") for entry in entries if entry.fields}
        known = self._look_up(sorted(filter(possible, ids)))
        found = [(entry, known.get(entry.fields.get("job_id", ""))) for entry in entries]
        gone = [entry.id for entry, _ in found if not entry.fields]
        real = [(entry, row, judge(row)) for entry, row in found if entry.fields]
        done = [entry.id for entry, _, verdict in real if verdict is Verdict.SETTLE]
        self.redis.settle(stream, [*gone, *done])
        self.state.count(Count.SETTLED, len(done))
        self._bury([(entry, row) for entry, row, verdict in real if row and verdict is Verdict.BURY])
        made_up = [entry for entry, _, verdict in real if verdict is Verdict.QUARANTINE]
        if made_up:
            self.quarantine.put([(entry, _why(entry)) for entry in made_up])
        self.redis.reflect([_mirror(row) for _, row, _ in real if row and row.state is not JobState.PENDING])
        return Counter[JobState | None](row.state if row else None for _, row, _ in real)

    def _look_up(self, ids: Sequence[str]) -> Mapping[str, Known]:
        return self.database.read(lambda tx: hints.look_up(tx, ids))

    def _bury(self, dead: Sequence[tuple[Entry, Known]]) -> None:
        if dead:
            letters = [letter(row, entry) for entry, row in dead]
            self.state.count(Count.DEAD_LETTERS, self.redis.bury(letters))


def letter(row: Known, entry: Entry | None = None) -> Letter:
    return Letter(
        job_id=row.job_id,
        version=row.version,
        origin_id="" if entry is None else entry.id,
        attempts=row.attempts,
        last_error=row.last_error or "",
        entry=entry,
    )


def _mirror(row: Known) -> Mirror:
    service = row.service if row.state in HELD else {}
    return Mirror(row.job_id, {"status": row.state, **service}, ended=row.state in JOB.terminal)


def _why(entry: Entry) -> str:
    if "job_id" not in entry.fields:
        return "the entry names no job: it has no field job_id"
    return f"there is no job {entry.fields['job_id'][:200]!r}"
