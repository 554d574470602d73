"""The policy in all its versions: each is whole, none is ever changed, and no number is left out."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, insert, select

from herdsman.core.errors import NotFound
from herdsman.core.reasons import Reason
from herdsman.db.connection import Record, Tx, records
from herdsman.db.schema import audit, policies

KIND = "policy"
"""In the audit: the kind of thing, and the name of the only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    version: int
    document: str
    note: str
    actor: str
    created_at: datetime


def newest(tx: Tx) -> int:
    """0 before anybody has set anything."""
    return int(tx.execute(select(func.max(policies.c.version))).scalar_one() or 0)


def get(tx: Tx, version: int) -> Edition:
    found = _editions(tx, first=version, limit=1)
    if not found or found[0].version != version:
        raise NotFound(f"there is no version {version} of the policy")
    return found[0]


def page(tx: Tx, *, after: int | None, limit: int) -> list[Edition]:
    """Newest first."""
    return _editions(tx, first=None if after is None else after - 1, limit=limit)


def add(tx: Tx, edition: Edition, details: dict[str, object]) -> None:
    """`Duplicate` when somebody else has made this version in the meantime."""
    values = {field: getattr(edition, field) for field in Edition.__dataclass_fields__}
    tx.execute(insert(policies).values(values))
    tx.execute(
        insert(audit).values(
            ts=edition.created_at,
            event_type=f"{KIND}.{Reason.CHANGED}",
            object_kind=KIND,
            object_id=KIND,
            seq=edition.version,
            from_status=None if edition.version == 1 else Reason.CHANGED.value,
            to_status=Reason.CHANGED.value,
            reason=Reason.CHANGED.value,
            actor=edition.actor,
            details=details,
        )
    )


def _editions(tx: Tx, *, first: int | None, limit: int) -> list[Edition]:
    query = select(policies).order_by(policies.c.version.desc()).limit(limit)
    if first is not None:
        query = query.where(policies.c.version <= first)
    return [_to_edition(row) for row in records(tx, query)]


def _to_edition(row: Record) -> Edition:
    return Edition(**{field: row[field] for field in Edition.__dataclass_fields__})
