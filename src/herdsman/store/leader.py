"""Who leads: one row with an epoch. It works behind poolers and on SQLite, and a stopped holder loses it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, bindparam, case, insert, select, true, update

from herdsman.core.errors import StaleWrite
from herdsman.store.columns import Instant
from herdsman.store.database import Tx
from herdsman.store.hot import Hot
from herdsman.store.schema import leader

NAME = "gpu_orchestrator_leader"

_OURS = leader.c.name == NAME
_NOW = bindparam("b_now", type_=Instant())
_HIS = leader.c.holder == bindparam("b_holder")
_MINE = _HIS & (leader.c.expires_at > _NOW)


def _taking(free: ColumnElement[bool]) -> Hot:
    return Hot(
        update(leader)
        .where(_OURS, free)
        # The epoch comes first: MariaDB assigns from left to right, and must still see the old holder.
        .ordered_values(
            (leader.c.epoch, leader.c.epoch + case((_MINE, 0), else_=1)),
            (leader.c.acquired_at, case((_MINE, leader.c.acquired_at), else_=_NOW)),
            (leader.c.holder, bindparam("b_holder", type_=leader.c.holder.type)),
            (leader.c.renewed_at, _NOW),
            (leader.c.expires_at, bindparam("b_expires", type_=Instant())),
        )
    )


# Asked again and again by every replica.
CURRENT = Hot(select(leader.c.holder, leader.c.epoch, leader.c.acquired_at, leader.c.expires_at).where(_OURS))
TAKE_FREE = _taking(_HIS | (leader.c.expires_at <= _NOW))
TAKE_ANY = _taking(true())
HELD = Hot(
    select(leader.c.expires_at)
    .where(_OURS, _HIS, leader.c.epoch == bindparam("b_epoch"))
    .with_for_update(read=True)
)


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
    given = {"b_holder": holder, "b_now": now, "b_expires": now + ttl}
    changed = tx.run(TAKE_ANY if holder_gone else TAKE_FREE, given)
    return find(tx) if changed == 1 else None


def resign(tx: Tx, holder: str, epoch: int) -> bool:
    """Let the next one in at once."""
    mine = (leader.c.name == NAME, leader.c.holder == holder, leader.c.epoch == epoch)
    return tx.execute(update(leader).where(*mine).values(expires_at=tx.now())).rowcount == 1


def require(tx: Tx, holder: str, epoch: int) -> None:
    """Every write of the leader begins with this. The row stays locked, so nobody takes over before the commit."""
    found = tx.rows(HELD, {"b_holder": holder, "b_epoch": epoch})
    if not found or found[0][0] <= tx.now():
        raise StaleWrite(f"{holder} no longer leads with epoch {epoch}: its write was refused")


def find(tx: Tx) -> Term | None:
    """Who leads, or led last."""
    found = tx.rows(CURRENT, {})
    return Term(*found[0]) if found else None


def _columns(term: Term) -> dict[str, object]:
    return {
        "holder": term.holder,
        "epoch": term.epoch,
        "acquired_at": term.acquired_at,
        "expires_at": term.expires_at,
    }
