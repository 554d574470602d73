"""Leader election by one row with an epoch, and the requests to the leader.

It works behind poolers and on SQLite, and a suspended leader loses it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, bindparam, delete, insert, select, true, update

from herdsman.db.connection import Record, Tx, record, values
from herdsman.db.dialects import Instant
from herdsman.db.schema import leader, requests
from herdsman.db.statements import PreparedStatement
from herdsman.errors import StaleWrite

NAME = "gpu_orchestrator_leader"
FOLLOWER = "gpu_orchestrator_follower"
"""The row in which any follower says that it is there. It never expires in the future: nobody leads by it."""
LATELY = timedelta(minutes=5)
"""A leader that has seen another replica within so long promises workers nothing: should it die, that one goes on."""
_OURS = leader.c.name == NAME
_NOW = bindparam("b_now", type_=Instant())
_HIS = leader.c.holder == bindparam("b_holder")


HELD = PreparedStatement(
    select(leader.c.expires_at).where(_OURS, _HIS, leader.c.epoch == bindparam("b_epoch")).with_for_update(read=True)
)
FOLLOWED = PreparedStatement(select(leader.c.renewed_at).where(leader.c.name == FOLLOWER))


@dataclass(frozen=True, slots=True)
class Term:
    holder: str
    epoch: int
    acquired_at: datetime
    expires_at: datetime
    renewed_at: datetime
    beats_since: datetime | None = None
    """Since when heartbeats could be written without a break; it may lie ahead. None: nothing is known of a break."""
    holds_until: datetime | None = None
    """Until then this leader may let workers go on without the database, should it lose it."""

    @property
    def resigned(self) -> bool:
        return self.expires_at <= self.renewed_at

    def judges_claims(self, now: datetime, claim_ttl: timedelta) -> bool:
        """Whether claims may be taken back for silence.

        Not while nobody renews the row: a break may be on, and what is promised in it is not written yet. And after one,
        not before whoever was told to go on has had the time of a claim to be heard again.
        """
        return self.expires_at > now and (self.beats_since is None or self.beats_since + claim_ttl <= now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Who wants to lead, and on which terms."""

    holder: str
    ttl: timedelta
    epoch: int | None = None
    """The term that it has; None where it has none, though its name may stand in the row."""
    hold: timedelta = timedelta(0)
    """How long it lets workers go on without the database, as long as it is the only replica."""
    away: bool = False
    """It could not write for longer than its term, by its own clock."""
    departed: tuple[str, ...] = ()
    """Holders that are known to have ended."""
    holder_gone: bool = False
    """Whoever holds the row has lost its session: the end of its term is not waited for."""


def _taking(free: ColumnElement[bool]) -> PreparedStatement:
    term = {name: bindparam(f"b_{name}", type_=leader.c[name].type) for name in _TERM}
    # What was read is what is replaced: of two that take it at once, one does.
    return PreparedStatement(update(leader).where(_OURS, free, leader.c.epoch == bindparam("b_seen")).values(term))


_TERM = tuple(each.name for each in fields(Term))
TAKE_FREE = _taking(_HIS | (leader.c.expires_at <= _NOW))
TAKE_ANY = _taking(true())
# Asked again and again by every replica.
CURRENT = PreparedStatement(select(*(leader.c[name] for name in _TERM)).where(_OURS))


def take_leadership(tx: Tx, who: Candidate) -> Term | None:
    """Become or stay the leader; None while somebody else is. `Duplicate` when two meet on the first row."""
    now = tx.now()
    current = find_leader(tx)
    if current is not None and current.holder != who.holder and current.expires_at > now and not who.holder_gone:
        return None  # without a look at the row's lock, which a write of the leader may hold
    lately = now - max(who.ttl, min(who.hold, LATELY))
    followed = any(renewed_at > lately for (renewed_at,) in tx.rows(FOLLOWED, {}))
    term = _next(current, who, now, alone=who.hold > timedelta(0) and not followed)
    if current is None:
        tx.execute(insert(leader).values(name=NAME, **asdict(term)))
        return term
    given = {f"b_{name}": value for name, value in asdict(term).items()}
    given |= {"b_now": now, "b_seen": current.epoch}
    return term if tx.run(TAKE_ANY if who.holder_gone else TAKE_FREE, given) == 1 else None


def _next(current: Term | None, who: Candidate, now: datetime, *, alone: bool) -> Term:
    """The term that follows on what stands in the row."""
    renews = (
        current is not None and (current.holder, current.epoch) == (who.holder, who.epoch) and current.expires_at > now
    )
    return Term(
        holder=who.holder,
        epoch=1 if current is None else current.epoch + (0 if renews else 1),
        acquired_at=current.acquired_at if current is not None and renews else now,
        expires_at=now + who.ttl,
        renewed_at=now,
        beats_since=None if current is None else _beats_since(current, who, now, renews=renews),
        holds_until=now + who.hold if alone else None,
    )


def _beats_since(current: Term, who: Candidate, now: datetime, *, renews: bool) -> datetime | None:
    """From when silence counts: after a break nobody knows yet who fell silent, and who could not be heard."""
    handed_over = current.resigned and now - current.renewed_at <= who.ttl
    if handed_over or (renews and not who.away):
        return current.beats_since
    known_to_be_over = current.resigned or current.holder in (who.holder, *who.departed)
    # Else it may be cut off and not dead, and its workers go on at its word for as long as it may give it.
    promised = None if known_to_be_over else current.holds_until
    return max(each for each in (current.beats_since, now, promised) if each is not None)


def follow_leader(tx: Tx, holder: str) -> None:
    """Let the leader know that it is not alone."""
    here = {"holder": holder, **dict.fromkeys(("acquired_at", "renewed_at", "expires_at"), tx.now())}
    if tx.execute(update(leader).where(leader.c.name == FOLLOWER).values(here)).rowcount == 0:
        term = Term(holder, 0, tx.now(), tx.now(), tx.now())
        tx.execute(insert(leader).values(name=FOLLOWER, **asdict(term)))


def resign_leadership(tx: Tx, holder: str, epoch: int) -> bool:
    """Let the next one in at once."""
    mine = (leader.c.name == NAME, leader.c.holder == holder, leader.c.epoch == epoch)
    left = {"expires_at": tx.now(), "renewed_at": tx.now(), "holds_until": None}
    return tx.execute(update(leader).where(*mine).values(left)).rowcount == 1


def require_leadership(tx: Tx, holder: str, epoch: int) -> None:
    """Every write of the leader begins with this. The row stays locked, so nobody takes over before the commit."""
    found = tx.rows(HELD, {"b_holder": holder, "b_epoch": epoch})
    if not found or found[0][0] <= tx.now():
        raise StaleWrite(f"{holder} no longer leads with epoch {epoch}: its write was refused")


def find_leader(tx: Tx) -> Term | None:
    """Who leads, or led last."""
    found = tx.rows(CURRENT, {})
    return Term(*found[0]) if found else None


MOST_TAKEN = 100
KEPT = timedelta(hours=1)
_BATCH = 500
# Along the index: what is not done stands together, and the oldest is first.
WAITING = PreparedStatement(
    select(requests.c.id)
    .where(requests.c.done_at.is_(None), requests.c.asked_at > bindparam("b_since"))
    .order_by(requests.c.asked_at)
    .limit(MOST_TAKEN)
)


def ask_leader_row(tx: Tx, request_id: str, kind: str, actor: str) -> None:
    tx.execute(insert(requests).values(id=request_id, kind=kind, actor=actor, asked_at=tx.now()))


def find_request(tx: Tx, request_id: str) -> Record | None:
    """Its `outcome` is there once it is done."""
    return record(tx, select(requests).where(requests.c.id == request_id))


def waiting_requests(tx: Tx, patience: timedelta) -> list[str]:
    """Those that somebody still waits for; also one that an earlier leader took and did not end."""
    return [row[0] for row in tx.rows(WAITING, {"b_since": tx.now() - patience})]


def take_request(tx: Tx, listed: Sequence[str]) -> None:
    tx.execute(update(requests).where(requests.c.id.in_(listed)).values(taken_at=tx.now()))


def finish_request(tx: Tx, listed: Sequence[str], outcome: Mapping[str, Any]) -> None:
    mine = (requests.c.id.in_(listed), requests.c.done_at.is_(None))
    tx.execute(update(requests).where(*mine).values(done_at=tx.now(), outcome=dict(outcome)))


def prune_requests(tx: Tx) -> int:
    """Remove the next batch of those that nobody waits for any more."""
    old = select(requests.c.id).where(requests.c.asked_at < tx.now() - KEPT).limit(_BATCH)
    found = values(tx, old.with_for_update(skip_locked=True))
    if found:
        tx.execute(delete(requests).where(requests.c.id.in_(found)))
    return len(found)
