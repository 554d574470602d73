"""Commands on limits: pause and resume everything, a pool or a type; read and set the policy; count GPU seconds."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from herdsman.concurrency import LatestValue
from herdsman.context import Services
from herdsman.db.connection import Database, Tx
from herdsman.db.errors import Duplicate
from herdsman.db.paging import check_limit
from herdsman.errors import Conflict, InvalidRequest, StoreUnavailable
from herdsman.fleet import sql as fleet_sql
from herdsman.fleet import stats_sql
from herdsman.fleet.workers_sql import move_workers
from herdsman.ids import PoolId
from herdsman.json_text import clean
from herdsman.limits import sql, wire
from herdsman.limits.control_policy import ControlPolicy, changes, check_policy
from herdsman.limits.rules import ALL, Pause, PauseKind
from herdsman.limits.sql import Edition
from herdsman.ports import Clock
from herdsman.states import Reason, WorkerStatus

T = TypeVar("T")
LONGEST_PAUSE = timedelta(days=365)
LONGEST_REASON = 255


def pause(
    services: Services, scope: str, *, reason: str = "", duration: timedelta | None = None, who: str = "admin"
) -> Pause:
    """None of its jobs is claimed from here on; workers finish their jobs, and stay. May be repeated."""
    if duration is not None and not timedelta(0) < duration <= LONGEST_PAUSE:
        raise InvalidRequest(f"the pause lasts {duration}: it must be more than 0 and at most {LONGEST_PAUSE}")

    def write(tx: Tx) -> Pause:
        until = None if duration is None else tx.now() + duration
        return sql.put_pause(tx, scope, PauseKind.PAUSE, _reason(reason, "paused manually"), who, until)

    return _write_pause(services, write)


def resume(services: Services, scope: str, *, who: str = "admin") -> bool:
    """Whether it was paused. Jobs are claimed again at once, unless another pause covers them.

    A pool that the provider had rejected is tried again, too: whoever resumes it has fixed the cause.
    """

    def write(tx: Tx) -> bool:
        lifted = sql.lift_pause(tx, scope, who)
        kind, _, name = scope.partition(":")
        if kind not in (ALL, "pool"):
            return lifted
        return fleet_sql.clear_stop(tx, PoolId(name) if kind == "pool" else None) or lifted

    return _write_pause(services, write)


def drain(services: Services, *, reason: str = "", who: str = "admin") -> Pause:
    """The whole cluster: no job is claimed, every worker finishes its jobs and leaves, and none are added."""

    def write(tx: Tx) -> Pause:
        move_workers(tx, WorkerStatus.ACTIVE, WorkerStatus.TERMINATING, Reason.DRAINED, who)
        return sql.put_pause(tx, ALL, PauseKind.DRAIN, _reason(reason, "drained manually"), who, None)

    return _write_pause(services, write)


def find_pauses(services: Services) -> wire.PausesOut:
    def read(tx: Tx) -> wire.PausesOut:
        paused = tuple(wire.PauseOut.of(each) for each in sql.active_pauses(tx).active)
        workers = {status.value: count for status, count in stats_sql.living_workers(tx).items()}
        return wire.PausesOut(holds=paused, jobs_held=stats_sql.jobs_held(tx), workers=workers)

    return services.database.read(read)


def expire_pauses(services: Services) -> int:
    """Lift those whose time is over. They had no effect any more; now the audit says so too."""
    return _write_pause(services, lambda tx: sql.lift_expired_pauses(tx, "leader"))


def _write_pause(services: Services, write: Callable[[Tx], T]) -> T:
    """Two first pauses of one scope at the same time: the second try finds the row."""
    try:
        return services.database.transact(write)
    except Duplicate:
        return services.database.transact(write)


def _reason(said: str, usual: str) -> str:
    return clean(said.strip(), LONGEST_REASON) or usual


FRESH_S = 1.0
"""A policy that another replica has set applies here after this long."""


class PolicyBook(LatestValue[ControlPolicy]):
    """The policy in force. While the database is away, the last one; with none yet, `StoreUnavailable`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        def read(last: ControlPolicy | None) -> ControlPolicy:
            try:
                return database.read(lambda tx: _current(tx, last))
            except StoreUnavailable:
                if last is None:
                    raise
                return last

        super().__init__(read, clock, FRESH_S)


def _current(tx: Tx, last: ControlPolicy | None) -> ControlPolicy:
    version = sql.newest_policy(tx)
    if last is not None and last.version == version:
        return last
    return wire.stored(sql.get_policy(tx, version).document).policy(version) if version else ControlPolicy()


LARGEST_DOCUMENT = 500_000
LONGEST_NOTE = 255
MOST_AUDITED = 100
_TRIES = 10


_FIRST = wire.EditionOut(version=0, policy=wire.PolicyDocument(), created_at=None, by=None, note="", changes=())


def find_policy(services: Services, version: int | None = None) -> wire.EditionOut:
    """The one in force, or an earlier one."""

    def read(tx: Tx) -> wire.EditionOut:
        wanted = sql.newest_policy(tx) if version is None else version
        return _shown(sql.get_policy(tx, wanted)) if wanted else _FIRST

    return services.database.read(read)


def policy_history(services: Services, *, after: int | None = None, limit: int = 50) -> wire.HistoryOut:
    """Newest first, each with what it changed."""
    check_limit(limit)
    found = services.database.read(lambda tx: sql.page_policies(tx, after=after, limit=limit + 1))
    shown = [*map(_shown, found)]
    pairs = zip(shown[:limit], [*shown[1:], _FIRST], strict=False)
    editions = tuple(_compared(each, before) for each, before in pairs)
    return wire.HistoryOut(versions=editions, next=editions[-1].version if len(found) > limit else None)


def set_policy(
    services: Services,
    document: wire.PolicyDocument,
    *,
    note: str = "",
    base_version: int | None = None,
    who: str = "cli",
) -> wire.EditionOut:
    """Make it the policy, for all replicas within a second. The same document again changes nothing.

    `Conflict` when `base_version` is not the current one: what somebody else has set is not overwritten unseen.
    """
    policy, text = document.policy(), document.model_dump_json()
    check_policy(policy)
    if len(text) > LARGEST_DOCUMENT:
        raise InvalidRequest(f"the policy is {len(text):,} characters, the limit is {LARGEST_DOCUMENT:,}")

    def write(tx: Tx) -> wire.EditionOut:
        newest = sql.newest_policy(tx)
        before = _shown(sql.get_policy(tx, newest)) if newest else _FIRST
        if base_version is not None and base_version != newest:
            raise Conflict(
                f"the policy is at version {newest} by now, not {base_version}: look at it and make the change again"
            )
        made = changes(_plain(before.policy), _plain(document))
        if not made:
            return before
        edition = Edition(
            version=newest + 1, document=text, note=clean(note, LONGEST_NOTE), actor=who[:255], created_at=tx.now()
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
        for _ in range(_TRIES):
            with suppress(Duplicate):  # somebody else set one in this very moment: ours comes after it
                return services.database.transact(write)
    finally:
        if isinstance(services.rules, PolicyBook):
            services.rules.drop()
    raise Conflict("the policy is being changed by many at once: look at it and try again")


def _compared(edition: wire.EditionOut, before: wire.EditionOut) -> wire.EditionOut:
    made = changes(_plain(before.policy), _plain(edition.policy))
    return edition.model_copy(update={"changes": tuple(wire.ChangeOut.of(each) for each in made)})


def _shown(edition: Edition) -> wire.EditionOut:
    return wire.EditionOut(
        version=edition.version,
        policy=wire.stored(edition.document),
        created_at=edition.created_at,
        by=edition.actor,
        note=edition.note,
        changes=(),
    )


def _plain(document: wire.PolicyDocument) -> dict[str, object]:
    return document.model_dump(mode="json")


def count_gpu_seconds(services: Services) -> int:
    """Of how many agents. Nothing is looked at where no agent has such a limit; two may count at once."""
    policy = services.rules()
    if not policy.counts_gpu_seconds:
        return 0
    found = services.database.read(lambda tx: sql.count_usage(tx, but=policy.cpu_pool))
    limited = {
        agent: seconds for agent, seconds in found.items() if policy.limits_of(agent).gpu_seconds_per_day is not None
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
