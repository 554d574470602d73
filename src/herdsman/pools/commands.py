"""Commands on pools that people ask for by name. Each may be repeated; the control loop carries them out."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.db.paging import LARGEST_PAGE, check_limit
from herdsman.errors import Conflict, InvalidRequest, NotFound, StaleWrite, StoreUnavailable
from herdsman.fleet.observe import check_zone
from herdsman.fleet.workers_sql import move_workers
from herdsman.ids import LONGEST, PoolId, check_name
from herdsman.jobs.model import Failure, FailureClass
from herdsman.jobs.protocol import Failed
from herdsman.jobs.worker_commands import end_claim
from herdsman.pools import rules, sql
from herdsman.states import PoolStatus, Reason, WorkerStatus

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Started:
    status: rules.PoolReport
    created: bool
    """False when it was there already; what was asked for holds from now on all the same."""


def start_pool(services: Services, new: rules.NewPool, *, who: str = "admin") -> Started:
    """Ask for a pool, or change what was asked for. One that has stopped or was evicted starts again."""
    rules.check_pool(new)
    for zone in new.rules.schedule.zones:
        check_zone(zone)
    pool_id = new.pool_id or PoolId(f"pool-{services.new_job_id()}")
    if pool_id in services.pools.reserved:
        raise Conflict(f"pool {pool_id!r} is one of the settings: change it there, or choose another name")
    for _ in range(_TRIES):
        try:
            return services.database.transact(lambda tx: _start(tx, services, pool_id, new, who))
        except Duplicate:  # somebody else asked for it in this very moment: look again
            continue
    raise StoreUnavailable("the same pool is asked for by many at once: send the request again")


def scale_pool(services: Services, pool_id: PoolId, desired: int, *, who: str = "admin") -> rules.PoolReport:
    rules.check_size("desired_workers", desired)
    del who  # it changes no state, so the audit has no line for it

    def scale(tx: Tx, pool: rules.Pool) -> None:
        most = pool.rules.max_workers
        if most is not None and desired > most:
            raise InvalidRequest(f"desired_workers is {desired}, and max_workers of the pool is {most}")
        sql.scale_pool(tx, pool_id, desired)

    return _change(services, pool_id, scale)


def swap_pool(
    services: Services, pool_id: PoolId, changed: Mapping[str, str | None], *, who: str = "admin"
) -> rules.PoolReport:
    """Serve another `model`, `adapter` or `variant`; None takes one away. Workers follow one after the other.

    Asked for again after workers could not load it, they try once more.
    """

    def swap(tx: Tx, pool: rules.Pool) -> None:
        serves = replace(pool.serves, **changed)
        rules.check_serves(serves)
        if serves != pool.serves or _status(tx, pool_id).troubles:
            sql.swap_pool(tx, pool, serves, who)

    return _change(services, pool_id, swap)


def beat_pool(services: Services, pool_id: PoolId) -> rules.PoolReport:
    """Still wanted: the time for which it is kept begins anew."""
    return _change(services, pool_id, lambda tx, _pool: sql.touch_pool(tx, pool_id))


def drain_pool(services: Services, pool_id: PoolId, *, who: str = "admin") -> rules.PoolReport:
    """Its workers claim no job from here on; they finish their jobs and leave, and it has stopped."""

    def drain(tx: Tx, pool: rules.Pool) -> None:
        if pool.status in rules.OPEN:
            _drain(tx, pool_id, Reason.DRAINED, who)

    return _change(services, pool_id, drain, among=PoolStatus)


def evict_pool(services: Services, pool_id: PoolId, *, who: str = "admin") -> rules.PoolReport:
    """At once: its workers are ended without waiting, and their jobs go back to the queue unharmed."""

    def evict(tx: Tx, pool: rules.Pool) -> None:
        if pool.status in (PoolStatus.STOPPED, PoolStatus.EVICTED):
            return
        sql.move_pool(tx, pool_id, PoolStatus.EVICTED, Reason.EVICTED, who)
        sql.drain_workers_of(tx, pool_id, Reason.EVICTED, who)
        # Those that have not begun to work are ended; they did not fail.
        move_workers(tx, WorkerStatus.SPAWNING, WorkerStatus.ERROR, Reason.EVICTED, who, pool=pool_id)
        failure = Failure(kind=FailureClass.INTERRUPTED, error=f"pool {pool_id} was evicted")
        for key in sql.jobs_held_in(tx, pool_id):
            with suppress(StaleWrite, NotFound):  # it has ended in this very moment
                end_claim(tx, services, Failed(key, failure), who)

    return _change(services, pool_id, evict, among=PoolStatus)


def _change(
    services: Services,
    pool_id: PoolId,
    change: Callable[[Tx, rules.Pool], None],
    *,
    among: Iterable[PoolStatus] = rules.OPEN,
) -> rules.PoolReport:
    """Change a pool that is in one of these states, with its row locked."""

    def write(tx: Tx) -> rules.PoolReport:
        pool = sql.lock_pool(tx, pool_id)
        if pool.status not in among:
            raise Conflict(
                f"pool {pool_id!r} is {pool.status}: start it again with POST /workers/pool (herdsman pool create)"
            )
        change(tx, pool)
        return _status(tx, pool_id)

    return services.database.transact(write)


def find_pool(services: Services, pool_id: PoolId) -> rules.PoolReport:
    return services.database.read(lambda tx: _status(tx, pool_id))


def list_pools(services: Services, *, after: str | None = None, limit: int = LARGEST_PAGE) -> list[rules.PoolReport]:
    """By name."""
    check_limit(limit)
    if after is not None:
        check_name("after", after, LONGEST["pool"])
    return services.database.read(lambda tx: sql.pool_statuses(tx, sql.list_pools(tx, after=after, limit=limit)))


def _start(tx: Tx, services: Services, pool_id: PoolId, new: rules.NewPool, who: str) -> Started:
    sql.lock_all_pools(tx)
    if sql.find_pool(tx, pool_id) is None:
        _make_room(tx, services, who)
        sql.add_pool(tx, pool_id, new, who)
        return Started(_status(tx, pool_id), created=True)
    pool = sql.lock_pool(tx, pool_id)
    if pool.status in (PoolStatus.STOPPED, PoolStatus.EVICTED):
        _make_room(tx, services, who)
        sql.restart_pool(tx, pool, new, who)
        return Started(_status(tx, pool_id), created=True)
    # Its workers have something loaded, and come from somewhere: asking once more does not change that.
    if new.serves != pool.serves:
        raise Conflict(
            f"pool {pool.pool_id!r} serves {pool.serves.model or 'no model'}"
            f" ({pool.serves.adapter or 'no adapter'}, {pool.serves.variant or 'no variant'}):"
            " change that with POST /workers/pool/{id}/swap (herdsman pool swap)"
        )
    if new.served_by is not pool.served_by:
        raise Conflict(f"pool {pool.pool_id!r} is served by {pool.served_by}: drain it before that is changed")
    sql.change_pool(tx, pool_id, new)
    if pool.status is PoolStatus.DRAINING:
        _make_room(tx, services, who)
        sql.move_pool(tx, pool_id, PoolStatus.RUNNING, Reason.STARTED_AGAIN, who)
        sql.touch_pool(tx, pool_id)
    return Started(_status(tx, pool_id), created=pool.status is PoolStatus.DRAINING)


def _make_room(tx: Tx, services: Services, who: str) -> None:
    """U2-05: the oldest of the pools that have been idle long enough gives way; some are kept warm in any case."""
    limits, there = services.pools, sql.open_pools(tx)
    if len(there) < limits.most:
        return
    idle_since = tx.now() - limits.idle_timeout
    may_go = there if len(there) > limits.min_warm else []
    for pool in may_go:
        used = max(pool.started_at, pool.used_at or pool.started_at)
        ours = pool.served_by is rules.ServedBy.HERDSMAN
        if ours and used < idle_since and not sql.pool_in_use(tx, pool.pool_id):
            sql.lock_pool(tx, pool.pool_id)
            _drain(tx, pool.pool_id, Reason.EVICTED, who)
            return
    raise Conflict(
        f"{len(there)} pools are open, as many as GPU_POOL_MAX_TOTAL allows, and none of them has been idle for"
        f" {limits.idle_timeout.total_seconds():g} s: drain one (herdsman pool drain), or raise the limit"
    )


def _drain(tx: Tx, pool_id: PoolId, reason: Reason, who: str) -> None:
    sql.move_pool(tx, pool_id, PoolStatus.DRAINING, reason, who)
    sql.drain_workers_of(tx, pool_id, reason, who)


def _status(tx: Tx, pool_id: PoolId) -> rules.PoolReport:
    return sql.pool_statuses(tx, [sql.get_pool(tx, pool_id)])[0]
