"""Workers that live, with the jobs that they hold: three statements, however many there are."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from herdsman.core.states import WORKER
from herdsman.db.connection import Record, Tx, record, records
from herdsman.db.schema import jobs, workers

MOST = 200

_LIVES = workers.c.status.in_([state.value for state in WORKER.live])


@dataclass(frozen=True, slots=True)
class Herd:
    workers: Sequence[Record]
    held: Mapping[str, Sequence[Record]]
    """By the worker."""
    more: int


def living(tx: Tx) -> Herd:
    """By pool and age."""
    order = (workers.c.pool, workers.c.created_at, workers.c.id)
    found = records(tx, select(workers).where(_LIVES).order_by(*order).limit(MOST))
    total = record(tx, select(func.count().label("count")).select_from(workers).where(_LIVES))
    assert total is not None
    return Herd(found, _held(tx, [row["id"] for row in found]), int(total["count"]) - len(found))


def _held(tx: Tx, listed: Sequence[str]) -> Mapping[str, Sequence[Record]]:
    held: defaultdict[str, list[Record]] = defaultdict(list)
    if not listed:
        return held
    columns = ("worker_id", "job_id", "type", "status", "progress", "progress_note", "claimed_at")
    query = select(*(jobs.c[name] for name in columns)).where(jobs.c.worker_id.in_(listed))
    for row in records(tx, query.order_by(jobs.c.worker_id, jobs.c.slot)):
        held[row["worker_id"]].append(row)
    return held


def starts(tx: Tx, listed: Sequence[str]) -> Mapping[str, Record]:
    """When these workers came, when they went to work, and what an hour of them costs."""
    columns: list[Any] = [workers.c.id, workers.c.created_at, workers.c.promoted_at, workers.c.cost_per_hour]
    query = select(*columns).where(workers.c.id.in_(listed))
    return {row["id"]: row for row in records(tx, query)} if listed else {}
