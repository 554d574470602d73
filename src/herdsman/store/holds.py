"""Holds: one row for each thing that was ever stopped. One whose time is over counts no more, lifted or not.

A row stays when its hold is lifted: whoever changes a hold waits for its row, and so nobody is ever overtaken.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, func, insert, or_, select, update

from herdsman.core.holds import ALL, Hold, Holding, HoldKind
from herdsman.core.reasons import Reason
from herdsman.core.states import WorkerState
from herdsman.db.connection import Tx
from herdsman.db.schema import audit, holds
from herdsman.db.statements import Hot, Row
from herdsman.store.workers import move_all

KIND = "hold"
LIFTED = "lifted"
MOST_LISTED = 1000
_BATCH = 500

_COLUMNS = (holds.c.scope, holds.c.kind, holds.c.why, holds.c.actor, holds.c.since, holds.c.until)
STANDING = Hot(
    select(*_COLUMNS)
    .where(holds.c.kind != LIFTED, or_(holds.c.until.is_(None), holds.c.until > bindparam("b_now")))
    .order_by(holds.c.scope)
    .limit(MOST_LISTED)
)
OVER = Hot(
    select(holds.c.scope)
    .where(holds.c.until <= bindparam("b_now"), holds.c.kind != LIFTED)
    .order_by(holds.c.scope)
    .limit(_BATCH)
    .with_for_update(skip_locked=True)
)
LOCKED = Hot(select(*_COLUMNS).where(holds.c.scope == bindparam("b_scope")).with_for_update())
_LAST = Hot(
    select(func.max(audit.c.seq)).where(
        audit.c.object_kind == KIND, audit.c.object_id == bindparam("b_scope")
    )
)


def standing(tx: Tx) -> Holding:
    return Holding(tuple(_to_hold(row) for row in tx.rows(STANDING, {"b_now": tx.now()})))


def put(tx: Tx, scope: str, kind: HoldKind, why: str, actor: str, until: datetime | None) -> Hold:
    """Hold it, or change the hold. The same again changes nothing; a pause does not undo a drain.

    `Duplicate` when two meet on the first hold of this scope: the second try finds the row.
    """
    wanted = Hold(scope=scope, kind=kind, why=why, actor=actor, since=tx.now(), until=until)
    rows = tx.rows(LOCKED, {"b_scope": scope})
    found = _to_hold(rows[0]) if rows and rows[0][1] != LIFTED else None
    current = None if found is None or _over(found, tx.now()) else found
    if current is not None and (_drained(current, wanted) or _same(current, wanted)):
        return current
    before = None if current is None else current.kind
    if rows:
        tx.execute(update(holds).where(holds.c.scope == scope).values(_values(wanted)))
    else:
        tx.execute(insert(holds).values(_values(wanted)))
    reason = Reason.DRAINED if kind is HoldKind.DRAIN else Reason.PAUSED
    _record(tx, wanted, before or LIFTED, kind, reason, actor)
    return wanted


def lift(tx: Tx, scope: str, actor: str) -> bool:
    """Whether there was a hold to lift."""
    rows = tx.rows(LOCKED, {"b_scope": scope})
    found = _to_hold(rows[0]) if rows and rows[0][1] != LIFTED else None
    if found is None:
        return False
    over = _over(found, tx.now())
    tx.execute(update(holds).where(holds.c.scope == scope).values(kind=LIFTED, until=holds.c.since))
    _record(tx, found, found.kind, LIFTED, Reason.TIME_OVER if over else Reason.RESUMED, actor)
    return not over


def lift_expired(tx: Tx, actor: str) -> int:
    """Remove the next batch of holds whose time is over."""
    found = [row[0] for row in tx.rows(OVER, {"b_now": tx.now()})]
    for scope in found:
        lift(tx, scope, actor)
    return len(found)


def drain_workers(tx: Tx, actor: str) -> int:
    """Every active worker finishes what it holds and leaves."""
    return move_all(tx, WorkerState.ACTIVE, WorkerState.TERMINATING, Reason.DRAINED, actor)


def _record(tx: Tx, hold: Hold, before: str, after: str, reason: Reason, actor: str) -> None:
    """Numbered without gaps: two that count at the same time meet on the number, and one begins again."""
    ((last,),) = tx.rows(_LAST, {"b_scope": hold.scope})
    tx.execute(
        insert(audit).values(
            ts=tx.now(),
            event_type=f"{KIND}.{after}",
            object_kind=KIND,
            object_id=hold.scope,
            seq=(last or 0) + 1,
            from_status=None if last is None else before,
            to_status=after,
            reason=reason.value,
            actor=actor,
            details={"why": hold.why, "until": None if hold.until is None else hold.until.isoformat()},
        )
    )


def _drained(current: Hold, wanted: Hold) -> bool:
    return current.kind is HoldKind.DRAIN and wanted.kind is HoldKind.PAUSE and wanted.scope == ALL


def _same(current: Hold, wanted: Hold) -> bool:
    return (current.kind, current.why, current.until) == (wanted.kind, wanted.why, wanted.until)


def _over(hold: Hold, now: datetime) -> bool:
    return hold.until is not None and hold.until <= now


def _values(hold: Hold) -> dict[str, Any]:
    return {
        "scope": hold.scope,
        "kind": hold.kind.value,
        "why": hold.why,
        "actor": hold.actor,
        "since": hold.since,
        "until": hold.until,
    }


def _to_hold(row: Row) -> Hold:
    scope, kind, why, actor, since, until = row
    return Hold(scope=scope, kind=HoldKind(kind), why=why, actor=actor, since=since, until=until)
