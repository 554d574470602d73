"""What the control loop recorded of its cycles."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Select, func, select

from herdsman.db.connection import Record, Tx, record, records
from herdsman.db.schema import cycles

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
class Told:
    id: int
    at: datetime
    summary: Mapping[str, Any]


def latest(tx: Tx, about: Callable[[Step], bool], limit: int) -> list[Decided]:
    """The latest steps that `about` accepts, newest first."""
    found: list[Decided] = []
    for page in _pages(tx, None):
        for row in page:
            found += [each for each in _steps(row) if about(each.step)]
        if len(found) >= limit:
            break
    return found[:limit]


def listed(
    tx: Tx, wanted: Callable[[Recorded], bool], *, before: int | None, limit: int
) -> tuple[list[Recorded], int | None]:
    """The latest cycles that are wanted, newest first, and behind which one to go on; None at the end.

    A page may be short, or empty, where few are wanted: so many are looked through and no more.
    """
    found: list[Recorded] = []
    for page in _pages(tx, before):
        for row in page:
            before = row["id"]
            if wanted(each := recorded(row)):
                found.append(each)
            if len(found) == limit:
                return found, before
        if len(page) < BATCH:
            return found, None
    return found, before


def told_since(tx: Tx, since: datetime, most: int) -> Iterator[Told]:
    """What each cycle from then on said of itself, newest first, and so many at most. Its steps are not read."""
    wanted = select(cycles.c.id, cycles.c.started_at, cycles.c.summary).order_by(cycles.c.id.desc())
    before: int | None = None
    while most > 0:
        query = wanted.limit(min(most, BATCH))
        page = records(tx, query if before is None else query.where(cycles.c.id < before))
        for row in page:
            if row["started_at"] <= since:
                return
            yield Told(id=row["id"], at=row["started_at"], summary=row["summary"])
        if len(page) < min(most, BATCH):
            return
        most, before = most - len(page), page[-1]["id"]


def find(tx: Tx, number: int) -> Recorded | None:
    row = record(tx, select(cycles).where(cycles.c.id == number))
    return None if row is None else recorded(row)


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


def recorded(row: Record) -> Recorded:
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
