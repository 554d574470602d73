"""Pools in SQL: their rows, their rules as one JSON column, their workers and jobs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Select, exists, func, insert, or_, select, update

from herdsman.db.connection import Record, Tx, record, records, values
from herdsman.db.schema import fleets, jobs, pools, workers
from herdsman.db.statements import PreparedStatement, in_state, one_of
from herdsman.errors import NotFound, StaleWrite
from herdsman.fleet.workers_sql import move_workers
from herdsman.ids import LONGEST, JobId, PoolId, check_name
from herdsman.jobs.model import ClaimKey
from herdsman.pools import rules
from herdsman.states import POOL, WORKER, JobStatus, PoolStatus, Reason, WorkerStatus

_RULES = TypeAdapter(rules.PoolRules)


def read_rules(column: Mapping[str, Any] | None) -> rules.PoolRules:
    return _RULES.validate_python(column or {})


MOST_LISTED = 1000
ALL = "*"
"""Not a pool: its row among the fleets is locked by whoever adds a pool, so that two cannot both take the last place."""
# Apart, as different indexes have them.
_AWAITING = (in_state(jobs.c.status, JobStatus.PENDING), in_state(jobs.c.status, JobStatus.SCHEDULED, JobStatus.FAILED))
CLOSED_POOLS = PreparedStatement(
    lambda listed: (
        select(pools.c.pool_id, pools.c.status)
        .where(pools.c.pool_id.in_(listed), one_of(pools.c.status, rules.CLOSED))
        .order_by(pools.c.pool_id)
    )
)
_LIVING = exists().where(workers.c.pool == pools.c.pool_id, one_of(workers.c.status, WORKER.live))
OBSERVED = PreparedStatement(
    select(pools)
    .where(or_(one_of(pools.c.status, (*rules.OPEN, PoolStatus.DRAINING)), _LIVING))
    .order_by(pools.c.started_at, pools.c.pool_id)
    .limit(MOST_LISTED)
)


def find_pool(tx: Tx, pool_id: PoolId) -> rules.Pool | None:
    row = record(tx, select(pools).where(pools.c.pool_id == pool_id))
    return None if row is None else _to_pool(row)


def get_pool(tx: Tx, pool_id: PoolId) -> rules.Pool:
    return _get(tx, pool_id, select(pools))


def lock_pool(tx: Tx, pool_id: PoolId) -> rules.Pool:
    """Nobody else changes it before this transaction ends. Whoever also changes its workers locks it first."""
    return _get(tx, pool_id, select(pools).with_for_update())


def _get(tx: Tx, pool_id: PoolId, query: Select[Any]) -> rules.Pool:
    check_name("pool_id", pool_id, LONGEST["pool"])
    row = record(tx, query.where(pools.c.pool_id == pool_id))
    if row is None:
        raise NotFound(f"there is no pool {pool_id!r}: herdsman pool list names those that there are")
    return _to_pool(row)


def list_pools(tx: Tx, *, after: str | None = None, limit: int = 100) -> list[rules.Pool]:
    """By name."""
    query = select(pools).order_by(pools.c.pool_id).limit(limit)
    page = query if after is None else query.where(pools.c.pool_id > after)
    return [_to_pool(row) for row in records(tx, page)]


def observed_pools(tx: Tx) -> list[rules.Pool]:
    """Those that the control loop manages: open or draining, or with workers left. Oldest first."""
    return [_to_pool(dict(zip(pools.c.keys(), row, strict=True))) for row in tx.rows(OBSERVED, {})]


def awaited_pools(tx: Tx) -> frozenset[PoolId]:
    """Those that jobs wait for: now, at their time, or after a failure."""
    awaited = or_(*(exists().where(jobs.c.pool == pools.c.pool_id, each) for each in _AWAITING))
    return frozenset(PoolId(each) for each in values(tx, select(pools.c.pool_id).where(awaited)))


def lock_all_pools(tx: Tx) -> None:
    """`Duplicate` when two meet on the first row: the second try finds it."""
    query = select(fleets.c.pool).where(fleets.c.pool == ALL).with_for_update()
    if record(tx, query) is None:
        tx.execute(insert(fleets).values(pool=ALL, waits=0))


def open_pools(tx: Tx) -> list[rules.Pool]:
    """Oldest first."""
    query = select(pools).where(one_of(pools.c.status, rules.OPEN)).order_by(pools.c.started_at, pools.c.pool_id)
    return [_to_pool(row) for row in records(tx, query.limit(MOST_LISTED))]


def pool_in_use(tx: Tx, pool_id: PoolId) -> bool:
    """One of its jobs waits or runs."""
    busy = select(jobs.c.job_id).where(jobs.c.pool == pool_id).limit(1)
    return any(record(tx, busy.where(each)) for each in (*_AWAITING, jobs.c.worker_id.is_not(None)))


def add_pool(tx: Tx, pool_id: PoolId, new: rules.NewPool, who: str) -> None:
    """`Duplicate` when there is one of this name."""
    tx.execute(
        insert(pools).values(
            **_asked(new),
            pool_id=pool_id,
            status=PoolStatus.STARTING.value,
            reason=Reason.CREATED.value,
            actor=who,
            version=1,
            revision=1,
            started_at=tx.now(),
            updated_at=tx.now(),
            metadata={},
        )
    )


def change_pool(tx: Tx, pool_id: PoolId, new: rules.NewPool) -> None:
    """What was asked for, except for what is served: that is changed by a swap."""
    served = _served(new.serves)
    _update(tx, pool_id, **{name: value for name, value in _asked(new).items() if name not in served})


def restart_pool(tx: Tx, pool: rules.Pool, new: rules.NewPool, who: str) -> None:
    """The same name, perhaps with another model: nothing of the old one is left that could serve it."""
    revision = pool.revision if pool.serves == new.serves else pool.revision + 1
    _update(tx, pool.pool_id, **_asked(new), revision=revision, started_at=tx.now(), used_at=None)
    move_pool(tx, pool.pool_id, PoolStatus.STARTING, Reason.STARTED_AGAIN, who)


def scale_pool(tx: Tx, pool_id: PoolId, desired: int) -> None:
    _update(tx, pool_id, desired_workers=desired)


def touch_pool(tx: Tx, pool_id: PoolId) -> None:
    """Still wanted: the time for which it is kept begins anew."""
    _update(tx, pool_id, last_heartbeat=tx.now(), used_at=tx.now())


def swap_pool(tx: Tx, pool: rules.Pool, serves: rules.Serves, who: str) -> None:
    """The next edition; who asked for it and when stays with the pool, the last few times."""
    row = record(tx, select(pools.c.metadata).where(pools.c.pool_id == pool.pool_id))
    assert row is not None
    entry = {"revision": pool.revision + 1, **_served(serves), "at": tx.now().isoformat(), "by": who}
    swaps = [*row["metadata"].get("swaps", []), entry][-_REMEMBERED:]
    _update(
        tx, pool.pool_id, **_served(serves), revision=pool.revision + 1, metadata={**row["metadata"], "swaps": swaps}
    )


def move_pool(tx: Tx, pool_id: PoolId, to: PoolStatus, reason: Reason, who: str) -> None:
    """The state table is the guard; a pool that has moved on is left alone."""
    changed = tx.execute(
        update(pools)
        .where(pools.c.pool_id == pool_id, one_of(pools.c.status, POOL.sources(to)))
        .values(status=to.value, reason=reason.value, actor=who, version=pools.c.version + 1, updated_at=tx.now())
    ).rowcount
    if changed == 0:
        raise StaleWrite(f"pool {pool_id!r} is {get_pool(tx, pool_id).status} and cannot become {to}")


def note_pool(tx: Tx, news: Sequence[rules.PoolNews]) -> None:
    for each in news:
        beat = {} if each.last_heartbeat is None else {"last_heartbeat": each.last_heartbeat}
        _update(tx, each.pool_id, spawned_workers=each.spawned_workers, used_at=each.used_at, **beat)


_REMEMBERED = 10


def _asked(new: rules.NewPool) -> dict[str, Any]:
    return {
        "agent_name": new.agent,
        **_served(new.serves),
        "desired_workers": new.desired_workers,
        "hold_seconds": round(new.hold.total_seconds()),
        "rules": _RULES.dump_python(new.rules, mode="json"),
        "served_by": new.served_by.value,
        "isolated": int(new.isolated),
    }


def _served(serves: rules.Serves) -> dict[str, str | None]:
    return {"model_id": serves.model, "adapter": serves.adapter, "variant": serves.variant}


def _update(tx: Tx, pool_id: PoolId, **changed: Any) -> None:
    tx.execute(update(pools).where(pools.c.pool_id == pool_id).values(changed))


def _to_pool(row: Record) -> rules.Pool:
    known: dict[str, Any] = {each.name: row[each.name] for each in fields(rules.Pool) if each.name in row}
    known |= {
        "agent": row["agent_name"],
        "serves": rules.Serves(model=row["model_id"], adapter=row["adapter"], variant=row["variant"]),
        "status": PoolStatus(row["status"]),
        "reason": Reason(row["reason"]),
        "hold": timedelta(seconds=row["hold_seconds"]),
        "rules": read_rules(row["rules"]),
        "served_by": rules.ServedBy(row["served_by"]),
        "isolated": bool(row["isolated"]),
    }
    return rules.Pool(**known)


MOST_TROUBLES = 10


def pool_statuses(tx: Tx, pools: Sequence[rules.Pool]) -> list[rules.PoolReport]:
    ids = [pool.pool_id for pool in pools]
    if not ids:
        return []
    columns = (workers.c.pool, workers.c.status, workers.c.revision)
    living = select(*columns, func.count().label("count")).where(
        workers.c.pool.in_(ids), one_of(workers.c.status, WORKER.live)
    )
    waiting = select(jobs.c.pool, func.count().label("count")).where(
        in_state(jobs.c.status, JobStatus.PENDING), jobs.c.pool.in_(ids)
    )
    found = records(tx, living.group_by(*columns))
    queued = {row["pool"]: int(row["count"]) for row in records(tx, waiting.group_by(jobs.c.pool))}
    statuses: list[rules.PoolReport] = []
    for pool in pools:
        mine = [row for row in found if row["pool"] == pool.pool_id]
        there: Counter[WorkerStatus] = Counter()
        at_revision = 0
        for row in mine:
            there[WorkerStatus(row["status"])] += int(row["count"])
            if row["status"] == WorkerStatus.ACTIVE and row["revision"] >= pool.revision:
                at_revision += int(row["count"])
        troubles: list[str] = []
        if at_revision < there[WorkerStatus.ACTIVE]:
            query = select(workers.c.metadata).where(
                workers.c.pool == pool.pool_id,
                workers.c.status == WorkerStatus.ACTIVE.value,
                workers.c.revision < workers.c.wanted_revision,
            )
            known = values(tx, query.order_by(workers.c.id).limit(MOST_TROUBLES))
            troubles = [str(each["load_trouble"]) for each in known if each.get("load_trouble")]
        statuses.append(
            rules.PoolReport(
                pool=pool,
                workers=dict(there),
                at_revision=at_revision,
                queued=queued.get(pool.pool_id, 0),
                troubles=tuple(dict.fromkeys(troubles)),
            )
        )
    return statuses


def drain_workers_of(tx: Tx, pool: PoolId, reason: Reason, who: str) -> int:
    """Every active worker of the pool takes no new job from here on, finishes its jobs and leaves."""
    return move_workers(tx, WorkerStatus.ACTIVE, WorkerStatus.TERMINATING, reason, who, pool=pool)


def jobs_held_in(tx: Tx, pool: PoolId) -> list[ClaimKey]:
    """What live workers of the pool have claimed, whichever pool the jobs are of."""
    query = (
        select(jobs.c.job_id, jobs.c.claim_token)
        .join(workers, workers.c.id == jobs.c.worker_id)
        .where(workers.c.pool == pool, one_of(workers.c.status, WORKER.live))
        .order_by(jobs.c.job_id)
    )
    return [ClaimKey(JobId(row["job_id"]), row["claim_token"]) for row in records(tx, query)]
