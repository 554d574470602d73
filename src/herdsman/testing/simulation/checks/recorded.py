"""Reads the part of a history that the database recorded."""

import json
from dataclasses import replace
from datetime import datetime, timedelta

from herdsman.db.connection import Database
from herdsman.db.statements import Row as Columns
from herdsman.testing.simulation import stored_history
from herdsman.testing.simulation.checks.history import (
    AttemptRow,
    History,
    JobRow,
    LeaseRow,
    Move,
    Row,
    WorkerRow,
)

_SECOND = timedelta(seconds=1)


def read_history(database: Database, *, zero: datetime) -> History:
    """Moves, rows and attempts of everything, seen at one moment; times are seconds since `zero`.

    What happened outside of the database is the caller's to add, with `dataclasses.replace`.
    """
    found = database.read(stored_history.everything)
    return History(
        moves=tuple(_move(row, zero) for row in found.moves),
        rows=(
            *(_job(row, zero) for row in found.jobs),
            *(_worker(row) for row in found.workers),
            *(_pool(row) for row in found.pools),
            *(_lease(row) for row in found.leases),
        ),
        attempts=tuple(_attempt(row, zero) for row in found.attempts),
    )


def only(history: History, *kinds: str) -> History:
    """Without the moves and rows of all other kinds: for those that were not left alone long enough."""
    return replace(
        history,
        moves=tuple(move for move in history.moves if move.kind in kinds),
        rows=tuple(row for row in history.rows if row.kind in kinds),
    )


def _move(row: Columns, zero: datetime) -> Move:
    kind, key, seq, old, new, reason, actor, at, details = row
    return Move(
        kind=kind,
        id=key,
        seq=seq,
        old=old,
        new=new,
        reason=reason,
        actor=actor,
        at=(at - zero) / _SECOND,
        token=details.get("claim_token") if kind == "job" else None,
    )


def _job(row: Columns, zero: datetime) -> JobRow:
    key, status, version, token, attempts, most, interruptions, losses, pool, priority, *rest = row
    result, created_at, run_at = rest
    return JobRow(
        id=key,
        status=status,
        version=version,
        claim_token=token,
        attempts=attempts,
        max_attempts=most,
        interruptions=interruptions,
        worker_losses=losses,
        pool=pool,
        priority=priority,
        result=None if result is None else json.loads(result),
        created_at=(created_at - zero) / _SECOND,
        run_at=(run_at - zero) / _SECOND,
    )


def _worker(row: Columns) -> WorkerRow:
    key, status, version, instance = row
    return WorkerRow(id=key, status=status, version=version, instance=instance)


def _pool(row: Columns) -> Row:
    key, status, version = row
    return Row(kind="pool", id=key, status=status, version=version)


def _lease(row: Columns) -> LeaseRow:
    key, status, version, gpu, seq = row
    return LeaseRow(id=key, status=status, version=version, gpu=gpu, seq=seq)


def _attempt(row: Columns, zero: datetime) -> AttemptRow:
    key, token, worker, claimed_at, ended_at, outcome, reason = row
    return AttemptRow(
        job_id=key,
        token=token,
        worker=worker,
        claimed_at=(claimed_at - zero) / _SECOND,
        ended_at=None if ended_at is None else (ended_at - zero) / _SECOND,
        outcome=outcome,
        reason=reason,
    )
