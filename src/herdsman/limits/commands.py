"""What a person may stop for a while, and let go on: everything, one pool, or one type of job."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, TypeVar

from herdsman.context import Services
from herdsman.db.connection import Database, Tx
from herdsman.db.errors import Duplicate
from herdsman.db.paging import check_limit
from herdsman.errors import Conflict, InvalidRequest, StoreUnavailable
from herdsman.fleet import sql as fleet_sql
from herdsman.fleet import stats_sql
from herdsman.ids import PoolId
from herdsman.json_text import clean
from herdsman.limits import sql
from herdsman.limits.policy import Change, ControlPolicy, changes, check_policy
from herdsman.limits.rules import ALL, Hold, HoldKind, Stillness
from herdsman.limits.sql import Edition
from herdsman.limits.wire import ChangeOut, EditionOut, HistoryOut, PolicyDocument, PolicyOut, stored
from herdsman.ports import Clock

T = TypeVar("T")
LONGEST_HOLD = timedelta(days=365)
LONGEST_WHY = 255


def pause(
    services: Services, scope: str, *, why: str = "", duration: timedelta | None = None, who: str = "admin"
) -> Hold:
    """No job of it is given out from here on; workers finish what they hold, and stay. May be repeated."""
    if duration is not None and not timedelta(0) < duration <= LONGEST_HOLD:
        raise InvalidRequest(f"the pause lasts {duration}: it must be more than 0 and at most {LONGEST_HOLD}")

    def write(tx: Tx) -> Hold:
        until = None if duration is None else tx.now() + duration
        return sql.put_hold(tx, scope, HoldKind.PAUSE, _why(why, "paused by hand"), who, until)

    return _write_hold(services, write)


def resume(services: Services, scope: str, *, who: str = "admin") -> bool:
    """Whether it was held. Jobs are given out again at once, unless something else holds them.

    A pool that the provider had rejected is asked for again, too: whoever says this has mended the cause.
    """

    def write(tx: Tx) -> bool:
        lifted = sql.lift_hold(tx, scope, who)
        return _mended(tx, scope) or lifted

    return _write_hold(services, write)


def _mended(tx: Tx, scope: str) -> bool:
    kind, _, name = scope.partition(":")
    if kind not in (ALL, "pool"):
        return False
    return fleet_sql.clear_stop(tx, PoolId(name) if kind == "pool" else None)


def drain(services: Services, *, why: str = "", who: str = "admin") -> Hold:
    """The whole cluster: nothing is given out, every worker finishes what it holds and leaves, none are made."""

    def write(tx: Tx) -> Hold:
        sql.drain_workers(tx, who)
        return sql.put_hold(tx, ALL, HoldKind.DRAIN, _why(why, "drained by hand"), who, None)

    return _write_hold(services, write)


def find_holds(services: Services) -> Stillness:
    def read(tx: Tx) -> Stillness:
        return Stillness(
            holding=sql.standing_holds(tx),
            jobs_held=stats_sql.jobs_held(tx),
            workers=stats_sql.living_workers(tx),
        )

    return services.database.read(read)


def expire_holds(services: Services, *, who: str = "leader") -> int:
    """Remove those whose time is over. They counted no more; now the audit says so too."""
    return _write_hold(services, lambda tx: sql.lift_expired_holds(tx, who))


def _write_hold(services: Services, write: Callable[[Tx], T]) -> T:
    """Two that hold the same thing for the first time at the same time: the second one finds the row, which stays."""
    try:
        return services.database.transact(write)
    except Duplicate:
        return services.database.transact(write)


def _why(said: str, usual: str) -> str:
    return clean(said.strip(), LONGEST_WHY) or usual


FRESH_S = 1.0
"""What another replica has set holds here after this long."""


class PolicyBook:
    """Safe to share between threads: one of them looks, the others go on with what was last seen."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._looking = Lock()
        self._seen: ControlPolicy | None = None
        self._next = 0.0

    def __call__(self) -> ControlPolicy:
        """While the database is away, what was last seen goes on; with nothing seen yet, `StoreUnavailable`."""
        seen = self._seen
        if seen is not None and self._clock.monotonic() < self._next:
            return seen
        if seen is not None and not self._looking.acquire(blocking=False):
            return seen
        if seen is None:
            self._looking.acquire()
        try:
            return self._look(self._seen)
        finally:
            self._looking.release()

    def drop(self) -> None:
        """It has changed: the next one who asks looks again."""
        self._next = 0.0

    def _look(self, seen: ControlPolicy | None) -> ControlPolicy:
        self._next = self._clock.monotonic() + FRESH_S
        try:
            found = self._database.read(lambda tx: _current(tx, seen))
        except StoreUnavailable:
            if seen is None:
                raise
            return seen
        self._seen = found
        return found


def _current(tx: Tx, seen: ControlPolicy | None) -> ControlPolicy:
    version = sql.newest_policy(tx)
    if seen is not None and seen.version == version:
        return seen
    return stored(sql.get_policy(tx, version).document).policy(version) if version else ControlPolicy()


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
        wanted = sql.newest_policy(tx) if version is None else version
        return _shown(sql.get_policy(tx, wanted)) if wanted else _FIRST

    return services.database.read(read)


def policy_history(services: Services, *, after: int | None = None, limit: int = 50) -> History:
    """Newest first, each with what it changed."""
    check_limit(limit)
    found = services.database.read(lambda tx: sql.page_policies(tx, after=after, limit=limit + 1))
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
        newest = sql.newest_policy(tx)
        before = _shown(sql.get_policy(tx, newest)) if newest else _FIRST
        if base_version is not None and base_version != newest:
            raise Conflict(
                f"the policy is at version {newest} by now, not {base_version}: look at it and make the change again"
            )
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
        listed = [{"path": each.path, "old": each.old, "new": each.new} for each in made[:MOST_AUDITED]]
        details: dict[str, object] = {
            "version": edition.version,
            "note": edition.note,
            "changes": listed,
            "changed": len(made),
        }
        sql.add_policy(tx, edition, details)
        sql.forget_gates(tx)
        return _compared(_shown(edition), before)

    try:
        return _write_policy(services, write)
    finally:
        if isinstance(services.rules, PolicyBook):
            services.rules.drop()


def _write_policy(services: Services, write: Callable[[Tx], PolicyEdition]) -> PolicyEdition:
    for _ in range(_TRIES):
        try:
            return services.database.transact(write)
        except Duplicate:  # somebody else set one in this very moment: ours comes after it
            continue
    raise Conflict("the policy is being changed by many at once: look at it and try again")


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


def count_gpu_seconds(services: Services) -> int:
    """Of how many agents. Nothing is looked at where no agent has such a limit; two may count at once."""
    policy = services.rules()
    if not policy.counts_gpu_seconds:
        return 0
    found = services.database.read(lambda tx: sql.count_usage(tx, but=policy.cpu_pool))
    limited = {
        agent: seconds
        for agent, seconds in found.items()
        if policy.limits_of(agent).gpu_seconds_per_day is not None
    }

    def write(tx: Tx) -> None:
        for agent in sorted(limited):
            sql.put_usage(tx, agent, limited[agent])
        sql.forget_usage(tx, tx.now() - sql.KEPT)

    try:
        services.database.transact(write)
    except Duplicate:  # another replica has counted the same in this very moment
        return 0
    return len(limited)
