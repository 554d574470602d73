"""Pools that were asked for by name: their rows."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import bindparam, exists, func, insert, or_, select, update

from herdsman.core.errors import Conflict, NotFound, StaleWrite
from herdsman.core.model import PoolId
from herdsman.core.pools import CLOSED, OPEN, NewPool, Pool, PoolNews, ServedBy, Serves
from herdsman.core.reasons import Reason
from herdsman.core.request import check_name
from herdsman.core.states import POOL, WORKER, JobState, PoolState
from herdsman.db.connection import Record, Tx, record, records, values
from herdsman.db.schema import fleets, jobs, pools, workers
from herdsman.db.statements import Hot, one_of
from herdsman.store.pool_rules import read_rules, write_rules

MOST_LISTED = 1000
ALL = "*"
"""Not a pool: its row among the fleets is locked by whoever adds a pool, so that two cannot both take the last place."""
_WAITING = (JobState.PENDING, JobState.SCHEDULED, JobState.FAILED)

CLOSED_ONES = Hot(
    lambda listed: (
        select(pools.c.pool_id, pools.c.status)
        .where(pools.c.pool_id.in_(listed), one_of(pools.c.status, CLOSED))
        .order_by(pools.c.pool_id)
    )
)
_LIVING = exists().where(workers.c.pool == pools.c.pool_id, one_of(workers.c.status, WORKER.live))
_NAMES = tuple(pools.c.keys())
OBSERVED = Hot(
    select(pools)
    .where(or_(one_of(pools.c.status, (*OPEN, PoolState.DRAINING)), _LIVING))
    .order_by(pools.c.started_at, pools.c.pool_id)
    .limit(MOST_LISTED)
)
NOTE = Hot(
    update(pools)
    .where(pools.c.pool_id == bindparam("b_pool"))
    .values(
        spawned_workers=bindparam("b_spawned"),
        last_heartbeat=func.coalesce(
            bindparam("b_beat", type_=pools.c.last_heartbeat.type), pools.c.last_heartbeat
        ),
        used_at=bindparam("b_used"),
    )
)


def find(tx: Tx, pool_id: PoolId) -> Pool | None:
    row = record(tx, select(pools).where(pools.c.pool_id == pool_id))
    return None if row is None else _to_pool(row)


def get(tx: Tx, pool_id: PoolId) -> Pool:
    check_name("pool_id", pool_id, 128)
    return _found(find(tx, pool_id), pool_id)


def lock(tx: Tx, pool_id: PoolId) -> Pool:
    """Nobody else changes it before this transaction ends. Who also changes its workers begins with this."""
    check_name("pool_id", pool_id, 128)
    row = record(tx, select(pools).where(pools.c.pool_id == pool_id).with_for_update())
    return _found(None if row is None else _to_pool(row), pool_id)


def listed(tx: Tx, *, after: str | None = None, limit: int = 100) -> list[Pool]:
    """By name."""
    query = select(pools).order_by(pools.c.pool_id).limit(limit)
    return [
        _to_pool(row) for row in records(tx, query if after is None else query.where(pools.c.pool_id > after))
    ]


def observed(tx: Tx) -> list[Pool]:
    """Those that the control loop has to look after: open or draining, or with workers that are left. Oldest first."""
    return [_to_pool(dict(zip(_NAMES, row, strict=True))) for row in tx.rows(OBSERVED, {})]


def awaited(tx: Tx) -> frozenset[PoolId]:
    """Those that jobs wait for: now, at their time, or after a failure."""
    job = exists().where(jobs.c.pool == pools.c.pool_id, one_of(jobs.c.status, _WAITING))
    return frozenset(PoolId(each) for each in values(tx, select(pools.c.pool_id).where(job)))


def require_open(tx: Tx, wanted: Sequence[PoolId]) -> None:
    """Refuse what would wait for a pool that is closed. One that nobody knows may still come (J1)."""
    distinct = sorted(set(wanted))
    for pool_id, status in tx.rows(CLOSED_ONES, {}, distinct) if distinct else ():
        raise Conflict(
            f"pool {pool_id!r} is {status} and takes no jobs: start it again with POST /workers/pool"
            " (herdsman pool create), or name another pool"
        )


def lock_all(tx: Tx) -> None:
    """`Duplicate` when two meet on the first row: the second try finds it."""
    query = select(fleets.c.pool).where(fleets.c.pool == ALL).with_for_update()
    if record(tx, query) is None:
        tx.execute(insert(fleets).values(pool=ALL, waits=0))


def open_ones(tx: Tx) -> list[Pool]:
    """Oldest first."""
    query = select(pools).where(one_of(pools.c.status, OPEN)).order_by(pools.c.started_at, pools.c.pool_id)
    return [_to_pool(row) for row in records(tx, query.limit(MOST_LISTED))]


def in_use(tx: Tx, pool_id: PoolId) -> bool:
    """A job of it waits, or is held."""
    busy = select(jobs.c.job_id).where(
        jobs.c.pool == pool_id, one_of(jobs.c.status, (*_WAITING, JobState.CLAIMED, JobState.RUNNING))
    )
    return record(tx, busy.limit(1)) is not None


def add(tx: Tx, pool_id: PoolId, new: NewPool, who: str) -> None:
    """`Duplicate` when there is one of this name."""
    tx.execute(
        insert(pools).values(
            **_asked(new),
            pool_id=pool_id,
            status=PoolState.STARTING.value,
            reason=Reason.CREATED.value,
            actor=who,
            version=1,
            revision=1,
            started_at=tx.now(),
            updated_at=tx.now(),
            metadata={},
        )
    )


def change(tx: Tx, pool_id: PoolId, new: NewPool) -> None:
    """What was asked for, except for what is served: that is changed by a swap."""
    served = _served(new.serves)
    _update(tx, pool_id, **{name: value for name, value in _asked(new).items() if name not in served})


def restart(tx: Tx, pool: Pool, new: NewPool, who: str) -> None:
    """The same name, perhaps with another model: nothing of the old one is left that could serve it."""
    revision = pool.revision if pool.serves == new.serves else pool.revision + 1
    _update(tx, pool.pool_id, **_asked(new), revision=revision, started_at=tx.now(), used_at=None)
    move(tx, pool.pool_id, PoolState.STARTING, Reason.STARTED_AGAIN, who)


def scale(tx: Tx, pool_id: PoolId, desired: int) -> None:
    _update(tx, pool_id, desired_workers=desired)


def touch(tx: Tx, pool_id: PoolId) -> None:
    """Somebody wants it kept: the time that it is held begins anew."""
    _update(tx, pool_id, last_heartbeat=tx.now(), used_at=tx.now())


def swap(tx: Tx, pool: Pool, serves: Serves, who: str) -> None:
    """The next edition; who asked for it and when stays with the pool, the last few times."""
    row = record(tx, select(pools.c.metadata).where(pools.c.pool_id == pool.pool_id))
    assert row is not None
    entry = {"revision": pool.revision + 1, **_served(serves), "at": tx.now().isoformat(), "by": who}
    swaps = [*row["metadata"].get("swaps", []), entry][-_REMEMBERED:]
    _update(
        tx,
        pool.pool_id,
        **_served(serves),
        revision=pool.revision + 1,
        metadata={**row["metadata"], "swaps": swaps},
    )


def move(tx: Tx, pool_id: PoolId, to: PoolState, reason: Reason, who: str) -> None:
    """The state table is the guard; a pool that has moved on is left alone."""
    changed = tx.execute(
        update(pools)
        .where(pools.c.pool_id == pool_id, one_of(pools.c.status, POOL.sources(to)))
        .values(
            status=to.value,
            reason=reason.value,
            actor=who,
            version=pools.c.version + 1,
            updated_at=tx.now(),
        )
    ).rowcount
    if changed == 0:
        raise StaleWrite(f"pool {pool_id!r} is {get(tx, pool_id).state} and cannot become {to}")


def note(tx: Tx, news: Sequence[PoolNews]) -> None:
    for each in news:
        given = {"b_pool": each.pool_id, "b_spawned": each.spawned_workers}
        tx.run(NOTE, {**given, "b_beat": each.last_heartbeat, "b_used": each.used_at})


_REMEMBERED = 10


def _asked(new: NewPool) -> dict[str, Any]:
    return {
        "agent_name": new.agent,
        **_served(new.serves),
        "desired_workers": new.desired_workers,
        "hold_seconds": round(new.hold.total_seconds()),
        "rules": write_rules(new.rules),
        "served_by": new.served_by.value,
        "isolated": int(new.isolated),
    }


def _served(serves: Serves) -> dict[str, str | None]:
    return {"model_id": serves.model, "adapter": serves.adapter, "variant": serves.variant}


def _update(tx: Tx, pool_id: PoolId, **changed: Any) -> None:
    tx.execute(update(pools).where(pools.c.pool_id == pool_id).values(changed))


def _found(pool: Pool | None, pool_id: PoolId) -> Pool:
    if pool is None:
        raise NotFound(f"there is no pool {pool_id!r}: herdsman pool list names those that there are")
    return pool


def _to_pool(row: Record) -> Pool:
    return Pool(
        pool_id=PoolId(row["pool_id"]),
        agent=row["agent_name"],
        serves=Serves(model=row["model_id"], adapter=row["adapter"], variant=row["variant"]),
        state=PoolState(row["status"]),
        reason=Reason(row["reason"]),
        desired_workers=row["desired_workers"],
        spawned_workers=row["spawned_workers"],
        started_at=row["started_at"],
        last_heartbeat=row["last_heartbeat"],
        used_at=row["used_at"],
        hold=timedelta(seconds=row["hold_seconds"]),
        revision=row["revision"],
        rules=read_rules(row["rules"] or {}),
        served_by=ServedBy(row["served_by"]),
        isolated=bool(row["isolated"]),
        updated_at=row["updated_at"],
    )
