"""What the control loop recorded of its cycles."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import select

from herdsman.store.database import Tx
from herdsman.store.reading import records
from herdsman.store.schema import cycles

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


def latest(tx: Tx, about: Callable[[Step], bool], limit: int) -> list[Decided]:
    """The latest steps that `about` accepts, newest first."""
    found: list[Decided] = []
    before: int | None = None
    for _ in range(MOST_READ // BATCH):
        query = select(cycles).order_by(cycles.c.id.desc()).limit(BATCH)
        page = records(tx, query if before is None else query.where(cycles.c.id < before))
        for row in page:
            found += [each for each in _steps(row) if about(each.step)]
        if len(found) >= limit or len(page) < BATCH:
            break
        before = page[-1]["id"]
    return found[:limit]


def _steps(row: Mapping[str, Any]) -> Iterator[Decided]:
    """The last step of a cycle comes first, as the last cycle does."""
    for step in reversed(cast("list[Step]", row["steps"]["steps"])):
        yield Decided(row["started_at"], row["epoch"], step)
