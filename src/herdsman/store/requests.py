"""What a replica that does not lead asks of the one that does: a row, and the answer in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update

from herdsman.db.connection import Tx, record
from herdsman.db.schema import requests
from herdsman.db.statements import Hot

MOST_TAKEN = 100
KEPT = timedelta(hours=1)
_BATCH = 500

# Along the index: what is not done stands together, and the oldest is first.
WAITING = Hot(
    select(requests.c.id)
    .where(requests.c.done_at.is_(None), requests.c.asked_at > bindparam("b_since"))
    .order_by(requests.c.asked_at)
    .limit(MOST_TAKEN)
)
OLD = Hot(
    select(requests.c.id)
    .where(requests.c.asked_at < bindparam("b_before"))
    .limit(_BATCH)
    .with_for_update(skip_locked=True)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    id: str
    actor: str
    taken_at: datetime | None
    done_at: datetime | None
    outcome: Mapping[str, Any] | None
    """Once it is done."""


def ask(tx: Tx, request_id: str, kind: str, actor: str) -> None:
    tx.execute(insert(requests).values(id=request_id, kind=kind, actor=actor, asked_at=tx.now()))


def find(tx: Tx, request_id: str) -> Asked | None:
    row = record(tx, select(requests).where(requests.c.id == request_id))
    if row is None:
        return None
    return Asked(
        id=row["id"],
        actor=row["actor"],
        taken_at=row["taken_at"],
        done_at=row["done_at"],
        outcome=row["outcome"],
    )


def waiting(tx: Tx, patience: timedelta) -> list[str]:
    """Those that somebody still waits for; also one that an earlier leader took and did not end."""
    return [row[0] for row in tx.rows(WAITING, {"b_since": tx.now() - patience})]


def take(tx: Tx, listed: Sequence[str]) -> None:
    tx.execute(update(requests).where(requests.c.id.in_(listed)).values(taken_at=tx.now()))


def finish(tx: Tx, listed: Sequence[str], outcome: Mapping[str, Any]) -> None:
    mine = (requests.c.id.in_(listed), requests.c.done_at.is_(None))
    tx.execute(update(requests).where(*mine).values(done_at=tx.now(), outcome=dict(outcome)))


def prune(tx: Tx) -> int:
    """Remove the next batch of those that nobody waits for any more."""
    found = [row[0] for row in tx.rows(OLD, {"b_before": tx.now() - KEPT})]
    if found:
        tx.execute(delete(requests).where(requests.c.id.in_(found)))
    return len(found)
