"""What the control loop recorded of its cycles."""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, takewhile
from typing import Any, TypeGuard, cast

from sqlalchemy import delete, func, insert, select

from herdsman.db.connection import Database, Record, Tx, record, records, values
from herdsman.db.schema import cycles, jobs, sights
from herdsman.db.statements import PreparedStatement, in_state
from herdsman.states import JobStatus

BATCH = 200
MOST_READ = 4000
"""How many cycles are looked through for one that mentions something; at one in 30 s, more than a day's."""
Step = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    id: int
    epoch: int
    at: datetime
    finished_at: datetime
    summary: Mapping[str, Any]
    steps: Sequence[Step]
    inputs: Mapping[str, Any]
    """What it saw; empty for one of an older version."""


def record_cycle(
    tx: Tx,
    epoch: int,
    started_at: datetime,
    summary: Mapping[str, object],
    steps: Sequence[Mapping[str, object]],
    inputs: Mapping[str, object] | None = None,
) -> int:
    """Its number."""
    document = {"steps": steps, **({} if inputs is None else {"inputs": inputs})}
    made = tx.execute(
        insert(cycles).values(epoch=epoch, started_at=started_at, finished_at=tx.now(), summary=summary, steps=document)
    )
    key = made.inserted_primary_key
    assert key is not None
    return int(key[0])


def latest_steps(tx: Tx, about: Callable[[Step], bool], limit: int) -> list[tuple[datetime, Step]]:
    """The latest steps that `about` accepts, newest first, each with the time of its cycle."""
    found = map(_to_recorded, _newest(tx, cycles.c, None, MOST_READ))
    steps = ((each.at, step) for each in found for step in reversed(each.steps) if about(step))
    return list(islice(steps, limit))


def list_cycles(
    tx: Tx, wanted: Callable[[Recorded], bool], *, before: int | None, limit: int
) -> tuple[list[Recorded], int | None]:
    """The latest cycles that are wanted, newest first, and the id after which to go on; None at the end.

    A page may be short, or empty, where few are wanted: at most `MOST_READ` are looked through.
    """
    found: list[Recorded] = []
    read = 0
    for row in _newest(tx, cycles.c, before, MOST_READ):
        read, before = read + 1, row["id"]
        if wanted(each := _to_recorded(row)):
            found.append(each)
        if len(found) == limit:
            return found, before
    return found, before if read == MOST_READ else None


def summaries_since(tx: Tx, since: datetime, most: int) -> Iterator[Record]:
    """`id`, `started_at` and `summary` of each cycle from then on, newest first, and so many at most."""
    rows = _newest(tx, (cycles.c.id, cycles.c.started_at, cycles.c.summary), None, most)
    return takewhile(lambda row: row["started_at"] > since, rows)


def _newest(tx: Tx, columns: Iterable[Any], before: int | None, most: int) -> Iterator[Record]:
    """Rows of cycles, newest first, read a page at a time."""
    query = select(*columns).order_by(cycles.c.id.desc())
    while most > 0:
        size = min(most, BATCH)
        page = records(tx, (query if before is None else query.where(cycles.c.id < before)).limit(size))
        yield from page
        if len(page) < size:
            return
        most, before = most - size, page[-1]["id"]


def find_cycle(tx: Tx, number: int) -> Recorded | None:
    return next(map(_to_recorded, records(tx, select(cycles).where(cycles.c.id == number))), None)


def spread_over(tx: Tx, since: datetime, points: int) -> list[tuple[datetime, Mapping[str, Any]]]:
    """Summaries from then on, oldest first: evenly picked where there are more than so many."""
    here = cycles.c.started_at > since
    ends = record(tx, select(func.min(cycles.c.id).label("a"), func.max(cycles.c.id).label("b")).where(here))
    if ends is None or ends["a"] is None:
        return []
    first, last = int(ends["a"]), int(ends["b"])
    every = max(1, -(-(last - first + 1) // points))
    query = select(cycles.c.started_at, cycles.c.summary).where(cycles.c.id.in_(range(last, first - 1, -every)), here)
    return [(row["started_at"], row["summary"]) for row in records(tx, query.order_by(cycles.c.id))]


def _to_recorded(row: Record) -> Recorded:
    return Recorded(
        id=row["id"],
        epoch=row["epoch"],
        at=row["started_at"],
        finished_at=row["finished_at"],
        summary=row["summary"],
        steps=cast("list[Step]", row["steps"]["steps"]),
        inputs=row["steps"].get("inputs", {}),
    )


SNAPSHOT_BATCH = 500
MOST_FROM_ONE = 120
"""Cycles that are stored as differences from the same one; at one in 30 s, an hour."""
Document = dict[str, Any]


RecordedSnapshot = tuple[Recorded, Document | None]
"""A cycle with what it saw; None where that cannot be unpacked any more."""


def note_snapshot(tx: Tx, cycle_id: int, document: Document) -> bool:
    """Write down what a cycle saw; whether it was written whole.

    The base is found anew each time: another leader may have written the last one.
    """
    row = record(tx, select(sights.c.cycle_id, sights.c.base_id).order_by(sights.c.cycle_id.desc()).limit(1))
    base_id = None if row is None else int(row["cycle_id"] if row["base_id"] is None else row["base_id"])
    whole = None if base_id is None or cycle_id - base_id > MOST_FROM_ONE else _whole(tx, base_id)
    base = None if whole is None else _unpack(whole)
    if whole is not None and base is not None:
        change = _pack(difference(base, document))
        if len(change) <= len(whole) // 2:
            tx.execute(insert(sights).values(cycle_id=cycle_id, base_id=base_id, data=change))
            return False
    tx.execute(insert(sights).values(cycle_id=cycle_id, base_id=None, data=_pack(document)))
    return True


def snapshots_since(database: Database, when: datetime) -> Iterator[RecordedSnapshot]:
    """The cycles from then on whose snapshot was recorded, oldest first; read a few at a time."""
    after = 0
    bases: dict[int, Document | None] = {}
    while True:
        page = database.read(lambda tx, after=after: _page(tx, when, after, bases))
        yield from page
        if len(page) < SNAPSHOT_BATCH:
            return
        after = page[-1][0].id


def _page(tx: Tx, when: datetime, after: int, bases: dict[int, Document | None]) -> list[RecordedSnapshot]:
    """`bases` keeps the last base: those that follow nearly always differ from the same one."""
    query = (
        select(cycles, sights.c.base_id, sights.c.data)
        .join(sights, sights.c.cycle_id == cycles.c.id)
        .where(cycles.c.started_at >= when, cycles.c.id > after)
        .order_by(cycles.c.id)
        .limit(SNAPSHOT_BATCH)
    )
    found: list[RecordedSnapshot] = []
    for row in records(tx, query):
        document, base_id = _unpack(row["data"]), row["base_id"]
        if base_id is not None and document is not None:
            if base_id not in bases:
                bases.clear()
                whole = _whole(tx, base_id)
                bases[base_id] = None if whole is None else _unpack(whole)
            base = bases[base_id]
            try:
                document = None if base is None else applied(base, document)
            except (LookupError, TypeError, ValueError, AttributeError):
                document = None
        found.append((_to_recorded(row), document))
    return found


def prune_snapshots(tx: Tx, before: datetime) -> int:
    """Remove the next batch of those from before then, but not one that a later one is a difference from."""
    kept = select(cycles.c.id).where(cycles.c.started_at >= before).order_by(cycles.c.started_at, cycles.c.id)
    oldest = values(tx, kept.limit(1))
    query = select(sights.c.cycle_id).order_by(sights.c.cycle_id).limit(SNAPSHOT_BATCH)
    if oldest:
        later = select(sights.c.cycle_id, sights.c.base_id).where(sights.c.cycle_id >= oldest[0])
        row = record(tx, later.order_by(sights.c.cycle_id).limit(1))
        needed = oldest[0] if row is None else row["cycle_id"] if row["base_id"] is None else row["base_id"]
        query = query.where(sights.c.cycle_id < int(needed))
    found = values(tx, query)
    if found:
        tx.execute(delete(sights).where(sights.c.cycle_id.in_(found)))
    return len(found)


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


Difference = list[Any]
SAME: Difference = []


def difference(old: Any, new: Any) -> Difference:
    """`applied(old, difference(old, new))` is `new`. Rows, which begin with their name, may come, go and change places."""
    if type(old) is not type(new):
        return ["new", new]
    pairs: dict[str, tuple[Any, Any]]
    if _rows(old) and _rows(new):
        places = {row[0]: at for at, row in enumerate(old)}
        found: list[Any] = []
        for row in new:
            place = places.get(row[0])
            change = SAME if place is None else difference(old[place], row)
            found.append({"row": row} if place is None else [place, change] if change else place)
        return SAME if found == list(range(len(old))) else ["rows", found]
    if _is_dict(old) and list(old) == list(new):
        pairs = {key: (old[key], new[key]) for key in new}
    elif _is_list(old) and len(old) == len(new):
        pairs = {str(at): (old[at], new[at]) for at in range(len(new))}
    else:
        return SAME if old == new and not _is_dict(old) else ["new", new]
    changes = {place: change for place, (one, other) in pairs.items() if (change := difference(one, other))}
    return ["cells", changes] if changes else SAME


def applied(old: Any, change: Difference) -> Any:
    if not change:
        return old
    kind, changes = change
    if kind == "new":
        return changes
    if kind == "rows":
        rows: list[Any] = []
        for each in changes:
            place, inner = each if _is_list(each) else (each, SAME)
            rows.append(each["row"] if _is_dict(each) else applied(old[place], inner))
        return rows
    if _is_dict(old):
        return {key: applied(cell, changes.get(key, SAME)) for key, cell in old.items()}
    return [applied(cell, changes.get(str(at), SAME)) for at, cell in enumerate(old)]


def _rows(value: Any) -> TypeGuard[list[list[Any]]]:
    return _is_list(value) and all(_is_list(each) and each and isinstance(each[0], str) for each in value)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_dict(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


MOST_COUNTED = 5000
"""Jobs that every cycle of the control loop counts by type: no index has the types, so each row is looked at."""
MOST_QUEUES = 50
_WAITING = in_state(jobs.c.status, JobStatus.PENDING)
_FIRST = select(jobs.c.type).where(_WAITING).limit(MOST_COUNTED + 1).subquery()
BY_TYPE = PreparedStatement(select(_FIRST.c.type, func.count()).group_by(_FIRST.c.type))


def oldest_queued(tx: Tx) -> tuple[str, datetime] | None:
    row = record(tx, select(jobs.c.job_id, jobs.c.run_at).where(_WAITING).order_by(jobs.c.run_at).limit(1))
    return None if row is None else (row["job_id"], row["run_at"])


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
    one, number = (jobs.c.type, jobs.c.pool), func.count()
    query = select(*one, number, func.min(jobs.c.run_at)).where(_WAITING).group_by(*one)
    return [Queue(*row) for row in tx.execute(query.order_by(number.desc(), *one).limit(MOST_QUEUES))]
