"""The policy that people set while everything runs: read it, change it, and see who changed what."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from herdsman.control.policy_book import PolicyBook
from herdsman.control.services import Services
from herdsman.core.body import clean
from herdsman.core.control_policy import check_policy
from herdsman.core.errors import Conflict, InvalidRequest
from herdsman.core.policy_changes import Change, changes
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.db.paging import check_limit
from herdsman.store import admission, policies
from herdsman.store.policies import Edition
from herdsman.wire.limits import ChangeOut, EditionOut, HistoryOut, PolicyDocument, PolicyOut, stored

LARGEST_DOCUMENT = 500_000
LONGEST_NOTE = 255
MOST_AUDITED = 100
_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEdition:
    version: int
    document: PolicyDocument
    created_at: datetime | None
    by: str | None
    note: str
    changes: tuple[Change, ...] = ()
    """From the version before."""

    def shown(self) -> PolicyOut:
        return PolicyOut(**self._told())

    def compared(self) -> EditionOut:
        listed = tuple(ChangeOut.of(change) for change in self.changes)
        return EditionOut(**self._told(), changes=listed)

    def _told(self) -> dict[str, Any]:
        same = {field: getattr(self, field) for field in ("version", "created_at", "by", "note")}
        return {**same, "policy": self.document}


@dataclass(frozen=True, slots=True)
class History:
    editions: tuple[PolicyEdition, ...]
    next: int | None

    def shown(self) -> HistoryOut:
        return HistoryOut(versions=tuple(each.compared() for each in self.editions), next=self.next)


_FIRST = PolicyEdition(version=0, document=PolicyDocument(), created_at=None, by=None, note="")


def find_policy(services: Services, version: int | None = None) -> PolicyEdition:
    """The one in force, or an earlier one."""

    def read(tx: Tx) -> PolicyEdition:
        wanted = policies.newest(tx) if version is None else version
        return _shown(policies.get(tx, wanted)) if wanted else _FIRST

    return services.database.read(read)


def policy_history(services: Services, *, after: int | None = None, limit: int = 50) -> History:
    """Newest first, each with what it changed."""
    check_limit(limit)
    found = services.database.read(lambda tx: policies.page(tx, after=after, limit=limit + 1))
    shown = [*map(_shown, found)]
    pairs = zip(shown[:limit], [*shown[1:], _FIRST], strict=False)
    editions = tuple(_compared(each, before) for each, before in pairs)
    return History(editions, editions[-1].version if len(found) > limit else None)


def set_policy(
    services: Services,
    document: PolicyDocument,
    *,
    note: str = "",
    base_version: int | None = None,
    who: str = "cli",
) -> PolicyEdition:
    """Make it the policy, for all replicas within a second. The same document again changes nothing.

    `Conflict` when `base_version` is not the current one: what somebody else has set is not overwritten unseen.
    """
    policy, text = document.policy(), document.model_dump_json()
    check_policy(policy)
    if len(text) > LARGEST_DOCUMENT:
        raise InvalidRequest(f"the policy is {len(text):,} characters, the limit is {LARGEST_DOCUMENT:,}")

    def write(tx: Tx) -> PolicyEdition:
        newest = policies.newest(tx)
        before = _shown(policies.get(tx, newest)) if newest else _FIRST
        _check_base(base_version, newest)
        made = changes(_plain(before.document), _plain(document))
        if not made:
            return before
        edition = Edition(
            version=newest + 1,
            document=text,
            note=clean(note, LONGEST_NOTE),
            actor=who[:255],
            created_at=tx.now(),
        )
        policies.add(tx, edition, _details(edition, made))
        admission.forget_gates(tx)
        return _compared(_shown(edition), before)

    try:
        return _again(services, write)
    finally:
        if isinstance(services.rules, PolicyBook):
            services.rules.drop()


def _again(services: Services, write: Callable[[Tx], PolicyEdition]) -> PolicyEdition:
    for _ in range(_TRIES):
        try:
            return services.database.transact(write)
        except Duplicate:  # somebody else set one in this very moment: ours comes after it
            continue
    raise Conflict("the policy is being changed by many at once: look at it and try again")


def _check_base(base: int | None, newest: int) -> None:
    if base is not None and base != newest:
        raise Conflict(
            f"the policy is at version {newest} by now, not {base}: look at it and make the change again"
        )


def _details(edition: Edition, made: tuple[Change, ...]) -> dict[str, object]:
    listed = [{"path": each.path, "old": each.old, "new": each.new} for each in made[:MOST_AUDITED]]
    return {"version": edition.version, "note": edition.note, "changes": listed, "changed": len(made)}


def _compared(edition: PolicyEdition, before: PolicyEdition) -> PolicyEdition:
    return replace(edition, changes=changes(_plain(before.document), _plain(edition.document)))


def _shown(edition: Edition) -> PolicyEdition:
    return PolicyEdition(
        version=edition.version,
        document=stored(edition.document),
        created_at=edition.created_at,
        by=edition.actor,
        note=edition.note,
    )


def _plain(document: PolicyDocument) -> dict[str, object]:
    return document.model_dump(mode="json")
