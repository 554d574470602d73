"""Who leads: one row with an epoch. It works behind poolers and on SQLite, and a stopped holder loses it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import case, insert, select, true, update

from herdsman.core.errors import StaleWrite
from herdsman.store.database import Tx
from herdsman.store.reading import record
from herdsman.store.schema import leader

NAME = "gpu_orchestrator_leader"


@dataclass(frozen=True, slots=True)
class Term:
    """One period of leadership."""

    holder: str
    epoch: int
    acquired_at: datetime
    expires_at: datetime


def take(tx: Tx, holder: str, ttl: timedelta, *, holder_gone: bool = False) -> Term | None:
    """Become or stay the leader; None while somebody else is. `Duplicate` when two meet on the first row.

    Where whoever holds the row is known to be gone, the end of its term is not waited for.
    """
    now = tx.now()
    current = find(tx)
    if current is None:
        term = Term(holder, 1, now, now + ttl)
        tx.execute(insert(leader).values(name=NAME, renewed_at=now, **_columns(term)))
        return term
    if current.holder != holder and current.expires_at > now and not holder_gone:
        return None  # without a look at the row's lock, which a write of the leader may hold
    mine = (leader.c.holder == holder) & (leader.c.expires_at > now)
    free = true() if holder_gone else (leader.c.holder == holder) | (leader.c.expires_at <= now)
    changed = tx.execute(
        update(leader)
        .where(leader.c.name == NAME, free)
        # The epoch comes first: MariaDB assigns from left to right, and must still see the old holder.
        .ordered_values(
            (leader.c.epoch, leader.c.epoch + case((mine, 0), else_=1)),
            (leader.c.acquired_at, case((mine, leader.c.acquired_at), else_=now)),
            (leader.c.holder, holder),
            (leader.c.renewed_at, now),
            (leader.c.expires_at, now + ttl),
        )
    ).rowcount
    return find(tx) if changed == 1 else None


def resign(tx: Tx, holder: str, epoch: int) -> bool:
    """Let the next one in at once."""
    mine = (leader.c.name == NAME, leader.c.holder == holder, leader.c.epoch == epoch)
    return tx.execute(update(leader).where(*mine).values(expires_at=tx.now())).rowcount == 1


def require(tx: Tx, holder: str, epoch: int) -> None:
    """Every write of the leader begins with this. The row stays locked, so nobody takes over before the commit."""
    mine = (leader.c.name == NAME, leader.c.holder == holder, leader.c.epoch == epoch)
    held = select(leader.c.expires_at).where(*mine).with_for_update(read=True)
    row = record(tx, held)
    if row is None or row["expires_at"] <= tx.now():
        raise StaleWrite(f"{holder} no longer leads with epoch {epoch}: its write was refused")


def find(tx: Tx) -> Term | None:
    """Who leads, or led last."""
    row = record(tx, select(leader).where(leader.c.name == NAME))
    if row is None:
        return None
    return Term(row["holder"], row["epoch"], row["acquired_at"], row["expires_at"])


def _columns(term: Term) -> dict[str, object]:
    return {
        "holder": term.holder,
        "epoch": term.epoch,
        "acquired_at": term.acquired_at,
        "expires_at": term.expires_at,
    }
