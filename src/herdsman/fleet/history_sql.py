"""What the control loop recorded of its cycles."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Select, bindparam, delete, func, insert, select

from herdsman.db.connection import Database, Record, Tx, record, records, values
from herdsman.db.schema import cycles, jobs, sights
from herdsman.db.statements import PreparedStatement
from herdsman.fleet.recording import applied, difference
from herdsman.states import JobState

BATCH = 200
MOST_READ = 4000
"""How many cycles are looked through for one that mentions something; at one in 30 s, more than a day's."""
Step = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Decided:
    """One step of a recorded cycle."""

    at: datetime
    epoch: int
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One cycle, as it was written down."""

    id: int
    epoch: int
    at: datetime
    finished_at: datetime
    summary: Mapping[str, Any]
    steps: Sequence[Step]
    inputs: Mapping[str, Any]
    """What it saw; empty for one of an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleSteps:
    id: int
    at: datetime
    summary: Mapping[str, Any]


def latest_cycle(tx: Tx, about: Callable[[Step], bool], limit: int) -> list[Decided]:
    """The latest steps that `about` accepts, newest first."""
    found: list[Decided] = []
    for page in _pages(tx, None):
        for row in page:
            found += [each for each in _steps(row) if about(each.step)]
        if len(found) >= limit:
            break
    return found[:limit]


def list_cycles(
    tx: Tx, wanted: Callable[[Recorded], bool], *, before: int | None, limit: int
) -> tuple[list[Recorded], int | None]:
    """The latest cycles that are wanted, newest first, and behind which one to go on; None at the end.

    A page may be short, or empty, where few are wanted: so many are looked through and no more.
    """
    found: list[Recorded] = []
    for page in _pages(tx, before):
        for row in page:
            before = row["id"]
            if wanted(each := recorded_cycles(row)):
                found.append(each)
            if len(found) == limit:
                return found, before
        if len(page) < BATCH:
            return found, None
    return found, before


def told_since(tx: Tx, since: datetime, most: int) -> Iterator[CycleSteps]:
    """What each cycle from then on said of itself, newest first, and so many at most. Its steps are not read."""
    wanted = select(cycles.c.id, cycles.c.started_at, cycles.c.summary).order_by(cycles.c.id.desc())
    before: int | None = None
    while most > 0:
        query = wanted.limit(min(most, BATCH))
        page = records(tx, query if before is None else query.where(cycles.c.id < before))
        for row in page:
            if row["started_at"] <= since:
                return
            yield CycleSteps(id=row["id"], at=row["started_at"], summary=row["summary"])
        if len(page) < min(most, BATCH):
            return
        most, before = most - len(page), page[-1]["id"]


def find_cycle(tx: Tx, number: int) -> Recorded | None:
    row = record(tx, select(cycles).where(cycles.c.id == number))
    return None if row is None else recorded_cycles(row)


def spread_over(tx: Tx, since: datetime, points: int) -> list[tuple[datetime, Mapping[str, Any]]]:
    """Summaries from then on, oldest first: evenly picked where there are more than so many."""
    here = cycles.c.started_at > since
    ends = record(tx, select(func.min(cycles.c.id).label("a"), func.max(cycles.c.id).label("b")).where(here))
    if ends is None or ends["a"] is None:
        return []
    first, last = int(ends["a"]), int(ends["b"])
    every = max(1, -(-(last - first + 1) // points))
    query = select(cycles.c.started_at, cycles.c.summary).where(
        cycles.c.id.in_(range(last, first - 1, -every)), here
    )
    return [(row["started_at"], row["summary"]) for row in records(tx, query.order_by(cycles.c.id))]


def _pages(tx: Tx, before: int | None) -> Iterator[list[Record]]:
    for _ in range(MOST_READ // BATCH):
        query: Select[Any] = select(cycles).order_by(cycles.c.id.desc()).limit(BATCH)
        page = records(tx, query if before is None else query.where(cycles.c.id < before))
        yield page
        if len(page) < BATCH:
            return
        before = page[-1]["id"]


def recorded_cycles(row: Record) -> Recorded:
    return Recorded(
        id=row["id"],
        epoch=row["epoch"],
        at=row["started_at"],
        finished_at=row["finished_at"],
        summary=row["summary"],
        steps=cast("list[Step]", row["steps"]["steps"]),
        inputs=row["steps"].get("inputs", {}),
    )


def _steps(row: Mapping[str, Any]) -> Iterator[Decided]:
    """The last step of a cycle comes first, as the last cycle does."""
    for step in reversed(cast("list[Step]", row["steps"]["steps"])):
        yield Decided(row["started_at"], row["epoch"], step)


SNAPSHOT_BATCH = 500
MOST_FROM_ONE = 120
"""Cycles that are told as differences from the same one; at one in 30 s, an hour."""
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sighted:
    cycle: Recorded
    document: Document | None
    """What it saw; None where that cannot be unpacked any more."""


def note_snapshot(tx: Tx, cycle_id: int, document: Document) -> bool:
    """Write down what a cycle saw; whether it was written whole."""
    base = _latest_base(tx, cycle_id)
    told = None if base is None else _pack(difference(base.document, document))
    if base is not None and told is not None and len(told) <= base.size // 2:
        tx.execute(insert(sights).values(cycle_id=cycle_id, base_id=base.id, data=told))
        return False
    tx.execute(insert(sights).values(cycle_id=cycle_id, base_id=None, data=_pack(document)))
    return True


def snapshots_since(database: Database, when: datetime) -> Iterator[Sighted]:
    """The cycles from then on of which it is known what they saw, oldest first; read a few at a time."""
    after, bases = 0, _Bases()
    while True:
        page = database.read(lambda tx, after=after: _page(tx, when, after, bases))
        yield from page
        if len(page) < SNAPSHOT_BATCH:
            return
        after = page[-1].cycle.id


def prune_snapshots(tx: Tx, before: datetime) -> int:
    """Remove the next batch of those from before then, but not one that a later one is told by."""
    edge = _first_needed(tx, before)
    query = select(sights.c.cycle_id).order_by(sights.c.cycle_id).limit(SNAPSHOT_BATCH)
    found = values(tx, query if edge is None else query.where(sights.c.cycle_id < edge))
    if found:
        tx.execute(delete(sights).where(sights.c.cycle_id.in_(found)))
    return len(found)


def _first_needed(tx: Tx, before: datetime) -> int | None:
    kept = select(cycles.c.id).where(cycles.c.started_at >= before).order_by(cycles.c.started_at, cycles.c.id)
    oldest = values(tx, kept.limit(1))
    if not oldest:
        return None
    later = select(sights.c.cycle_id, sights.c.base_id).where(sights.c.cycle_id >= oldest[0])
    row = record(tx, later.order_by(sights.c.cycle_id).limit(1))
    if row is None:
        return int(oldest[0])
    return int(row["cycle_id"] if row["base_id"] is None else row["base_id"])


@dataclass(frozen=True, slots=True)
class _Base:
    id: int
    size: int
    document: Document


def _latest_base(tx: Tx, cycle_id: int) -> _Base | None:
    """Found anew each time: another leader may have written the last one. None where it is time for a whole one."""
    latest = select(sights.c.cycle_id, sights.c.base_id).order_by(sights.c.cycle_id.desc()).limit(1)
    row = record(tx, latest)
    if row is None:
        return None
    base_id = int(row["cycle_id"] if row["base_id"] is None else row["base_id"])
    data = _whole(tx, base_id) if cycle_id - base_id <= MOST_FROM_ONE else None
    document = None if data is None else _unpack(data)
    return None if data is None or document is None else _Base(base_id, len(data), document)


class _Bases:
    """The last base that was read: those that follow are nearly always told by it."""

    def __init__(self) -> None:
        self._id: int | None = None
        self._document: Document | None = None

    def find(self, tx: Tx, base_id: int) -> Document | None:
        if base_id != self._id:
            data = _whole(tx, base_id)
            self._id, self._document = base_id, None if data is None else _unpack(data)
        return self._document


def _page(tx: Tx, when: datetime, after: int, bases: _Bases) -> list[Sighted]:
    query = (
        select(cycles, sights.c.base_id, sights.c.data)
        .join(sights, sights.c.cycle_id == cycles.c.id)
        .where(cycles.c.started_at >= when, cycles.c.id > after)
        .order_by(cycles.c.id)
        .limit(SNAPSHOT_BATCH)
    )
    return [Sighted(recorded_cycles(row), _document(tx, row, bases)) for row in records(tx, query)]


def _document(tx: Tx, row: Record, bases: _Bases) -> Document | None:
    told = _unpack(row["data"])
    if row["base_id"] is None or told is None:
        return told
    base = bases.find(tx, row["base_id"])
    try:
        return None if base is None else cast("Document", applied(base, cast("list[Any]", told)))
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _whole(tx: Tx, cycle_id: int) -> bytes | None:
    row = record(tx, select(sights.c.data).where(sights.c.cycle_id == cycle_id, sights.c.base_id.is_(None)))
    return None if row is None else bytes(row["data"])


def _pack(document: object) -> bytes:
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode())


def _unpack(data: bytes) -> Any:
    """None for what somebody has damaged."""
    try:
        return json.loads(zlib.decompress(data))
    except (zlib.error, ValueError):
        return None


MOST_COUNTED = 5000
"""Jobs that every cycle of the control loop counts by type: no index has the types, so each row is looked at."""
MOST_QUEUES = 50
_WAITING = jobs.c.status == JobState.PENDING.value
_FIRST = select(jobs.c.type).where(_WAITING).limit(MOST_COUNTED + 1).subquery()
BY_TYPE = PreparedStatement(select(_FIRST.c.type, func.count()).group_by(_FIRST.c.type))
_NUMBER = func.count()
QUEUES = PreparedStatement(
    select(jobs.c.type, jobs.c.pool, _NUMBER, func.min(jobs.c.run_at))
    .where(_WAITING)
    .group_by(jobs.c.type, jobs.c.pool)
    .order_by(_NUMBER.desc(), jobs.c.type, jobs.c.pool)
    .limit(bindparam("b_limit"))
)
OLDEST = PreparedStatement(
    select(jobs.c.job_id, jobs.c.run_at).where(_WAITING).order_by(jobs.c.run_at).limit(1)
)


def oldest_queued(tx: Tx) -> tuple[str, datetime] | None:
    found = tx.rows(OLDEST, {})
    return None if not found else (found[0][0], found[0][1])


@dataclass(frozen=True, slots=True)
class Queue:
    type: str
    pool: str
    count: int
    oldest: datetime
    """When the one became due that waits longest."""


def queued_by_type(tx: Tx) -> Mapping[str, int] | None:
    """None when more wait than are counted each time."""
    found = {kind: int(count) for kind, count in tx.rows(BY_TYPE, {})}
    return found if sum(found.values()) <= MOST_COUNTED else None


def read_queues(tx: Tx) -> list[Queue]:
    """The longest first. It looks at every job that waits, so it is not to be asked for often."""
    return [Queue(*row) for row in tx.rows(QUEUES, {"b_limit": MOST_QUEUES})]
