"""Tokens: written down as hashes, found by their ids, revoked, used once."""

from datetime import timedelta
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, or_, select, update

from herdsman.access.rules import Role, Token
from herdsman.db.connection import Record, Tx, record, records, values
from herdsman.db.schema import tokens, workers
from herdsman.db.statements import PreparedStatement
from herdsman.errors import NotFound
from herdsman.ids import WorkerId
from herdsman.states import WorkerStatus

MOST_LIVE = 50_000
_PEPPER = "pepper"
"""The id of a row that is no token; ids of tokens are hexadecimal."""
_FIELDS = tuple(Token.__dataclass_fields__)
FIND = PreparedStatement(
    select(*(tokens.c[field] for field in _FIELDS), tokens.c.hash, workers.c.status)
    .select_from(tokens.outerjoin(workers, workers.c.id == tokens.c.worker_id))
    .where(tokens.c.id == bindparam("b_id"))
)


def add_token(tx: Tx, token: Token, hashed: str) -> None:
    columns: dict[str, Any] = {field: getattr(token, field) for field in _FIELDS}
    tx.execute(insert(tokens).values({**columns, "role": token.role.value, "hash": hashed}))


def find_token(tx: Tx, token_id: str) -> tuple[Token, str, WorkerStatus | None] | None:
    """With its hash, and the state of its worker when it has one that is still known."""
    found = tx.rows(FIND, {"b_id": token_id})
    if not found:
        return None
    *fields, hashed, status = found[0]
    return _to_token(dict(zip(_FIELDS, fields, strict=True))), hashed, status and WorkerStatus(status)


def get_token(tx: Tx, token_id: str, *, locked: bool = False) -> Token:
    query = select(tokens).where(tokens.c.id == token_id, tokens.c.id != _PEPPER)
    row = record(tx, query.with_for_update() if locked else query)
    if row is None:
        raise NotFound(f"there is no token {token_id!r}")
    return _to_token(row)


def live_ids(tx: Tx) -> frozenset[str]:
    """Of those that still let somebody in; the newest, if there are very many."""
    live = tokens.c.revoked_at.is_(None) & or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > tx.now())
    query = select(tokens.c.id).where(live, tokens.c.id != _PEPPER)
    return frozenset(values(tx, query.order_by(tokens.c.created_at.desc()).limit(MOST_LIVE)))


def page_tokens(tx: Tx, *, after: str | None, limit: int) -> list[Token]:
    """In the order of their ids, which says nothing but never shifts."""
    query = select(tokens).where(tokens.c.id != _PEPPER)
    if after is not None:
        query = query.where(tokens.c.id > after)
    return [_to_token(row) for row in records(tx, query.order_by(tokens.c.id).limit(limit))]


def revoke_token(tx: Tx, token_id: str) -> bool:
    """False when it was revoked before."""
    alive = (tokens.c.id == token_id, tokens.c.revoked_at.is_(None))
    return tx.execute(update(tokens).where(*alive).values(revoked_at=tx.now())).rowcount == 1


def use_token(tx: Tx, token_id: str, incarnation: str) -> bool:
    """False when it was used before: of two at once, one wins."""
    fresh = (tokens.c.id == token_id, tokens.c.used_at.is_(None), tokens.c.revoked_at.is_(None))
    used = update(tokens).where(*fresh).values(used_at=tx.now(), incarnation=incarnation)
    return tx.execute(used).rowcount == 1


def note_use(tx: Tx, token_id: str, often: timedelta) -> None:
    """It was used just now; not written down again within so long. Not for one that is good for a single use."""
    unnoted = or_(tokens.c.used_at.is_(None), tokens.c.used_at < tx.now() - often)
    noted = update(tokens).where(tokens.c.id == token_id, tokens.c.role != Role.BOOTSTRAP.value, unnoted)
    tx.execute(noted.values(used_at=tx.now()))


def note_registered(tx: Tx, worker_id: WorkerId) -> None:
    """Its process is there, and its heartbeats are due."""
    tx.execute(update(workers).where(workers.c.id == worker_id).values(registered_at=tx.now()))


def supersede(tx: Tx, worker_id: WorkerId, incarnation: str) -> int:
    """The tokens of every other incarnation of this worker end; how many did."""
    others = (
        tokens.c.worker_id == worker_id,
        tokens.c.role == Role.WORKER.value,
        tokens.c.incarnation != incarnation,
        tokens.c.revoked_at.is_(None),
    )
    return tx.execute(update(tokens).where(*others).values(revoked_at=tx.now())).rowcount


def is_given_to(tx: Tx, worker_id: WorkerId, incarnation: str) -> bool:
    """Whether this incarnation of the worker has been given a token that still counts."""
    mine = (tokens.c.worker_id == worker_id, tokens.c.incarnation == incarnation)
    live = (tokens.c.role == Role.WORKER.value, tokens.c.revoked_at.is_(None))
    return bool(values(tx, select(tokens.c.id).where(*mine, *live).limit(1)))


def lock_worker(tx: Tx, worker_id: WorkerId) -> WorkerStatus | None:
    """Two incarnations that come at once are taken one after the other."""
    row = record(tx, select(workers.c.status).where(workers.c.id == worker_id).with_for_update())
    return None if row is None else WorkerStatus(row["status"])


def count_live(tx: Tx, role: Role) -> int:
    unexpired = or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > tx.now())
    query = select(func.count()).where(tokens.c.role == role.value, tokens.c.revoked_at.is_(None), unexpired)
    return int(values(tx, query)[0])


def prune_tokens(tx: Tx, older_than: timedelta, limit: int) -> int:
    """Forget tokens that ended so long ago; a page of them at a time."""
    before = tx.now() - older_than
    over = or_(tokens.c.expires_at < before, tokens.c.revoked_at < before)
    ids = values(tx, select(tokens.c.id).where(over, tokens.c.id != _PEPPER).limit(limit))
    if ids:
        tx.execute(delete(tokens).where(tokens.c.id.in_(ids)))
    return len(ids)


def pepper_mark(tx: Tx) -> str | None:
    row = record(tx, select(tokens.c.hash).where(tokens.c.id == _PEPPER))
    return None if row is None else str(row["hash"])


def mark_pepper(tx: Tx, hashed: str) -> None:
    tx.execute(insert(tokens).values(id=_PEPPER, role=_PEPPER, name=_PEPPER, hash=hashed, created_at=tx.now()))


def touch_pepper(tx: Tx) -> None:
    """A write that changes nothing which anybody reads: whether the database takes one."""
    tx.execute(update(tokens).where(tokens.c.id == _PEPPER).values(used_at=tx.now()))


def _to_token(row: Record) -> Token:
    known: Record = {**{field: row[field] for field in _FIELDS}, "role": Role(row["role"])}
    return Token(**known)
