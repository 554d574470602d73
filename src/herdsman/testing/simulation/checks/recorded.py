"""Reads the part of a history that the database recorded.

There is no limit on any of these reads: they are for fleets that are over and small, those of tests and simulations.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Select, select

from herdsman.db.connection import Database, Tx
from herdsman.db.schema import audit, job_attempts, jobs, leases, pools, workers
from herdsman.db.statements import PreparedStatement
from herdsman.testing.simulation.checks.history import (
    AttemptRow,
    History,
    JobRow,
    LeaseRow,
    Move,
    Row,
    WorkerRow,
)

T = TypeVar("T")
_SECOND = timedelta(seconds=1)


class _Reading:
    """All rows of a table, ordered by `order`; what is renamed stands under its name in the history."""

    def __init__(self, table: Any, *same: str, order: str = "", **renamed: str) -> None:
        columns = {**renamed, **{name: name for name in same}}
        query: Select[Any, *tuple[Any, ...]] = select(*(table.c[each] for each in columns.values()))
        self.statement = PreparedStatement(query.order_by(table.c[order]) if order else query)
        self.names = tuple(columns)


# Moves are in the order of the numbers, which on a server is nearly that of the commits; of one object it is exactly that.
_MOVES = _Reading(
    audit,
    "seq",
    "reason",
    "actor",
    "details",
    order="id",
    kind="object_kind",
    id="object_id",
    old="from_status",
    new="to_status",
    at="ts",
)
_JOBS = _Reading(
    jobs,
    *("status", "version", "claim_token", "attempts", "max_attempts", "interruptions", "worker_losses"),
    *("pool", "priority", "result", "created_at", "run_at"),
    id="job_id",
)
_WORKERS = _Reading(workers, "id", "status", "version", instance="instance_name")
_POOLS = _Reading(pools, "status", "version", id="pool_id")
_LEASES = _Reading(leases, "status", "version", id="token", gpu="gpu_uuid", seq="lease_seq")
_ATTEMPTS = _Reading(
    job_attempts,
    *("job_id", "claimed_at", "ended_at", "outcome", "reason"),
    token="claim_token",
    worker="worker_id",
)


def read_history(database: Database, *, zero: datetime) -> History:
    """Moves, rows and attempts of everything, seen at one moment; times are seconds since `zero`.

    What happened outside of the database is the caller's to add, with `dataclasses.replace`.
    """

    def load(tx: Tx, make: Callable[..., T], reading: _Reading) -> Iterator[T]:
        for row in tx.rows(reading.statement, {}):
            values = ((each - zero) / _SECOND if isinstance(each, datetime) else each for each in row)
            yield make(**dict(zip(reading.names, values, strict=True)))

    def read(tx: Tx) -> History:
        return History(
            moves=tuple(load(tx, _move, _MOVES)),
            rows=(
                *load(tx, _job, _JOBS),
                *load(tx, WorkerRow, _WORKERS),
                *load(tx, partial(Row, kind="pool"), _POOLS),
                *load(tx, LeaseRow, _LEASES),
            ),
            attempts=tuple(load(tx, AttemptRow, _ATTEMPTS)),
        )

    return database.read(read)


def _move(*, kind: str, details: Mapping[str, Any], **known: Any) -> Move:
    return Move(kind=kind, token=details.get("claim_token") if kind == "job" else None, **known)


def _job(*, result: str | None, **known: Any) -> JobRow:
    return JobRow(result=None if result is None else json.loads(result), **known)


def only(history: History, *kinds: str) -> History:
    """Without the moves and rows of all other kinds: for those that were not left alone long enough."""
    return replace(
        history,
        moves=tuple(move for move in history.moves if move.kind in kinds),
        rows=tuple(row for row in history.rows if row.kind in kinds),
    )
