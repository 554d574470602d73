"""What cycles saw: one in a while whole, the others by what was different then. Unpacked, each is exactly as it was."""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import delete, insert, select

from herdsman.core.deltas import applied, difference
from herdsman.db.connection import Database, Record, Tx, record, records, values
from herdsman.db.schema import cycles, sights
from herdsman.store.cycles import Recorded, recorded

BATCH = 500
MOST_FROM_ONE = 120
"""Cycles that are told as differences from the same one; at one in 30 s, an hour."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sighted:
    cycle: Recorded
    document: Document | None
    """What it saw; None where that cannot be unpacked any more."""


def note(tx: Tx, cycle_id: int, document: Document) -> bool:
    """Write down what a cycle saw; whether it was written whole."""
    base = _latest_base(tx, cycle_id)
    told = None if base is None else _pack(difference(base.document, document))
    if base is not None and told is not None and len(told) <= base.size // 2:
        tx.execute(insert(sights).values(cycle_id=cycle_id, base_id=base.id, data=told))
        return False
    tx.execute(insert(sights).values(cycle_id=cycle_id, base_id=None, data=_pack(document)))
    return True


def since(database: Database, when: datetime) -> Iterator[Sighted]:
    """The cycles from then on of which it is known what they saw, oldest first; read a few at a time."""
    after, bases = 0, _Bases()
    while True:
        page = database.read(lambda tx, after=after: _page(tx, when, after, bases))
        yield from page
        if len(page) < BATCH:
            return
        after = page[-1].cycle.id


def prune(tx: Tx, before: datetime) -> int:
    """Remove the next batch of those from before then, but not one that a later one is told by."""
    edge = _first_needed(tx, before)
    query = select(sights.c.cycle_id).order_by(sights.c.cycle_id).limit(BATCH)
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
        .limit(BATCH)
    )
    return [Sighted(recorded(row), _document(tx, row, bases)) for row in records(tx, query)]


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
