"""What the leader writes of workers, instances and pools; and which models workers have loaded."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, or_, select, update

from herdsman.db.connection import Record, Tx, record, records, values
from herdsman.db.schema import fleets, instances, pools, worker_models, workers
from herdsman.db.statements import PreparedStatement, Row, one_of
from herdsman.errors import InvalidRequest, StaleWrite
from herdsman.fleet.actions import ActionReason
from herdsman.fleet.model import FleetPolicy, Instance
from herdsman.fleet.snapshot_sql import Listed
from herdsman.fleet.workers_sql import move_worker, note, register_worker
from herdsman.ids import DEFAULT_POOL, PoolId, WorkerId
from herdsman.jobs.protocol import Load
from herdsman.json_text import clean
from herdsman.pools.rules import OPEN
from herdsman.pools.sql import read_rules
from herdsman.states import WORKER, Reason, WorkerStatus

MOST_MODELS = 64
LONGEST_MODEL = 255
LONGEST_TROUBLE = 500
HIGHEST_REVISION = 2**31 - 1
KNOWN = PreparedStatement(select(worker_models.c.model).where(worker_models.c.worker_id == bindparam("b_worker")))
SERVES = PreparedStatement(
    update(workers)
    .where(workers.c.id == bindparam("b_worker"), workers.c.revision != bindparam("b_revision"))
    .values(revision=bindparam("b_revision"), loaded_at=bindparam("b_now"))
)
_LOADED = (pools.c.revision, pools.c.model_id, pools.c.adapter, pools.c.variant, pools.c.rules)
BEHIND = PreparedStatement(
    select(*_LOADED)
    .join(workers, workers.c.pool == pools.c.pool_id)
    .where(workers.c.id == bindparam("b_worker"), workers.c.wanted_revision > workers.c.revision)
)
SERVED = PreparedStatement(select(*_LOADED).where(pools.c.pool_id == bindparam("b_pool")))


def note_models(
    tx: Tx, worker_id: WorkerId, models: Iterable[str] | None, revision: int | None, trouble: str | None = None
) -> None:
    """What a worker says of itself, bounded (X9). Nothing is written when it is known already."""
    if models is not None:
        loaded = {clean(each, LONGEST_MODEL) for each in list(models)[:MOST_MODELS]}
        known = {model for (model,) in tx.rows(KNOWN, {"b_worker": worker_id})}
        if gone := known - loaded:
            mine = worker_models.c.worker_id == worker_id
            tx.execute(delete(worker_models).where(mine, worker_models.c.model.in_(sorted(gone))))
        for model in sorted(loaded - known):
            tx.execute(insert(worker_models).values(worker_id=worker_id, model=model))
    if revision is not None and 0 <= revision <= HIGHEST_REVISION:
        tx.run(SERVES, {"b_worker": worker_id, "b_revision": revision, "b_now": tx.now()})
    if trouble is not None:
        # Why a swap does not get on.
        note(tx, worker_id, {"load_trouble": clean(trouble, LONGEST_TROUBLE)})


def load_order(tx: Tx, worker_id: WorkerId) -> Load | None:
    """What the worker has to load now; None when it serves what it was assigned, or was assigned nothing."""
    found = tx.rows(BEHIND, {"b_worker": worker_id})
    return _to_load(found[0]) if found else None


def served_by(tx: Tx, pool: PoolId) -> Load | None:
    """What a new worker of the pool begins with; None for a pool of the settings."""
    found = tx.rows(SERVED, {"b_pool": pool})
    return _to_load(found[0]) if found else None


def assign_revision(tx: Tx, worker_id: WorkerId, revision: int) -> None:
    behind = (workers.c.id == worker_id, workers.c.wanted_revision < revision)
    tx.execute(update(workers).where(*behind).values(wanted_revision=revision))


def require_known(tx: Tx, wanted: AbstractSet[str]) -> None:
    """Refuse a model that no open pool is for and no living worker has loaded: it may be misspelt."""
    if not wanted:
        return
    loaded = select(worker_models.c.model).where(worker_models.c.model.in_(sorted(wanted))).distinct()
    unknown = wanted - {row["model"] for row in records(tx, loaded)}
    if not unknown:
        return
    named = select(pools.c.model_id, pools.c.rules).where(one_of(pools.c.status, OPEN))
    for pool in records(tx, named):
        unknown -= {pool["model_id"], *read_rules(pool["rules"]).preload}
    if unknown:
        raise InvalidRequest(
            f"the model {min(unknown)!r} is named by no open pool and loaded by no worker, and STRICT_MODEL_STORE is set:"
            " create a pool that serves or preloads it, or correct the name"
        )


def _to_load(row: Row) -> Load:
    revision, model, adapter, variant, rules = row
    return Load(revision=revision, model=model, adapter=adapter, variant=variant, preload=read_rules(rules).preload)


LEADER = "leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A worker that is about to be created: written down before anything is asked for (P2)."""

    worker_id: WorkerId
    instance_name: str
    pool: PoolId
    provider: str
    revision: int = 0
    """The edition of the pool's model that it is started with."""


def intend(tx: Tx, intent: Intent, policy: FleetPolicy, most_together: int | None = None) -> str:
    """Take a place for one more worker, or say why there is none. Both ceilings hold for any number of callers."""
    living = workers.c.status.in_([state.value for state in WORKER.live])
    counted = select(func.count()).select_from(workers).where(living)
    together = 0
    if most_together is not None:
        # Ours in the pool `default` and in those that were created by name; nobody adds one before we are done.
        _lock_pool(tx, DEFAULT_POOL)
        sharing = or_(workers.c.pool == DEFAULT_POOL, workers.c.pool.in_(select(pools.c.pool_id)))
        together = int(values(tx, counted.where(sharing, workers.c.instance_name.is_not(None)))[0])
    pool = _lock_pool(tx, intent.pool)
    if pool["stopped_by"] is not None:
        return str(pool["stopped_by"])
    if pool["wait_until"] is not None and pool["wait_until"] > tx.now():
        return "the provider had nothing to give a moment ago"
    if int(values(tx, counted.where(workers.c.pool == intent.pool))[0]) >= policy.max_workers:
        return f"pool {intent.pool} has {policy.max_workers} workers alive already"
    if most_together is not None and together >= most_together:
        return f"all pools together have {most_together} workers alive already"
    name, provider = intent.instance_name, intent.provider
    register_worker(tx, intent.worker_id, pool=intent.pool, provider=provider, instance_name=name)
    if intent.revision:
        assign_revision(tx, intent.worker_id, intent.revision)
    tx.execute(
        insert(instances).values(
            name=intent.instance_name,
            worker_id=intent.worker_id,
            pool=intent.pool,
            provider=intent.provider,
            cost_per_hour=0,
            asked_at=tx.now(),
        )
    )
    tx.execute(update(fleets).where(fleets.c.pool == intent.pool).values(last_scaled_at=tx.now()))
    return ""


def created_since(tx: Tx, pool: PoolId, span: timedelta) -> int:
    query = select(func.count()).select_from(instances)
    return int(values(tx, query.where(instances.c.pool == pool, instances.c.asked_at > tx.now() - span))[0])


def attach(tx: Tx, worker_id: WorkerId, instance: Instance) -> None:
    """The provider has named the instance and its price."""
    cost = float(instance.cost_per_hour)
    changed = {
        "instance_ref": instance.ref,
        "cost_per_hour": cost,
        "absent_since": None,
        "instance_type": instance.gpu_type,
    }
    _change(tx, worker_id, changed)
    known = {"ref": instance.ref, "gpu_type": instance.gpu_type, "cost_per_hour": cost, "started_at": tx.now()}
    tx.execute(update(instances).where(instances.c.name == instance.name).values(known))


def promote(tx: Tx, worker_id: WorkerId, why: ActionReason) -> None:
    move_worker(tx, worker_id, WorkerStatus.ACTIVE, Reason.READY, LEADER)
    _change(tx, worker_id, {"promoted_at": tx.now()})
    note(tx, worker_id, {"auto_promoted": why.code.value})


def fail(tx: Tx, worker_id: WorkerId, why: ActionReason) -> None:
    move_worker(tx, worker_id, WorkerStatus.ERROR, Reason.LOST, LEADER)
    _change(tx, worker_id, {"failed_at": tx.now(), "error_code": why.code.value, "error_reason": why.text})
    note(tx, worker_id, {"error_reason": why.text, "error_code": why.code.value})


def abandon(tx: Tx, worker_id: WorkerId, why: ActionReason) -> None:
    """Nothing was started for it: the row ends without counting as a worker that failed."""
    move_worker(tx, worker_id, WorkerStatus.ERROR, Reason.LOST, LEADER)
    move_worker(tx, worker_id, WorkerStatus.TERMINATED, Reason.STOPPED, LEADER)
    _change(tx, worker_id, {"error_code": why.code.value, "error_reason": why.text})
    tx.execute(update(instances).where(instances.c.worker_id == worker_id).values(ended_at=tx.now()))


def cancel_spawn(tx: Tx, worker_id: WorkerId, why: ActionReason) -> None:
    """It was not needed any more before it began: its machine is ended, and no failure is counted."""
    move_worker(tx, worker_id, WorkerStatus.ERROR, Reason.DRAINED, LEADER)
    _change(tx, worker_id, {"error_code": why.code.value, "error_reason": why.text})


def drain(tx: Tx, worker_id: WorkerId) -> None:
    move_worker(tx, worker_id, WorkerStatus.TERMINATING, Reason.DRAINED, LEADER)


def mark_terminated(tx: Tx, worker_id: WorkerId) -> None:
    """Its instance is paid for up to the first listing that lacked it; being sure of it takes longer.
    Its models are forgotten with it."""
    absent = record(tx, select(workers.c.absent_since).where(workers.c.id == worker_id))
    move_worker(tx, worker_id, WorkerStatus.TERMINATED, Reason.STOPPED, LEADER)
    tx.execute(delete(worker_models).where(worker_models.c.worker_id == worker_id))
    tx.execute(
        update(instances)
        .where(instances.c.worker_id == worker_id, instances.c.ended_at.is_(None))
        .values(ended_at=tx.now() if absent is None else absent["absent_since"] or tx.now())
    )


def end_asked(tx: Tx, worker_id: WorkerId) -> None:
    _change(tx, worker_id, {"end_asked_at": tx.now()})


def note_listed(tx: Tx, listed: Listed) -> None:
    for found, noted in (
        (listed.lost, {"absent_since": tx.now()}),
        (listed.back, {"absent_since": None}),
        (listed.new, {"listed_at": tx.now()}),
    ):
        if found:
            tx.execute(update(workers).where(workers.c.id.in_(found)).values(noted))


def wait(tx: Tx, pool: PoolId, first: timedelta, longest: timedelta) -> None:
    """No capacity: the longer it has lasted, the longer we wait before asking again."""
    waits = int(_lock_pool(tx, pool)["waits"])
    pause = min(longest, first * 2 ** min(waits, 16))
    changed = {"waits": waits + 1, "wait_until": tx.now() + pause}
    tx.execute(update(fleets).where(fleets.c.pool == pool).values(changed))


def go_on(tx: Tx, pool: PoolId) -> None:
    """The provider gave something: the next wait is a short one again."""
    waited = (fleets.c.pool == pool, fleets.c.waits > 0)
    tx.execute(update(fleets).where(*waited).values(waits=0, wait_until=None))


def stop(tx: Tx, pool: PoolId, why: str) -> None:
    """The provider refused in a way that only a person can repair."""
    _lock_pool(tx, pool)
    tx.execute(update(fleets).where(fleets.c.pool == pool).values(stopped_by=why, waits=0, wait_until=None))


def clear_stop(tx: Tx, pool: PoolId | None) -> bool:
    """A person has repaired it: the provider may be asked again, for this pool or for all. Whether one was stopped."""
    stopped = fleets.c.stopped_by.is_not(None)
    mine = stopped if pool is None else stopped & (fleets.c.pool == pool)
    cleared = tx.execute(update(fleets).where(mine).values(stopped_by=None, waits=0, wait_until=None))
    return cleared.rowcount > 0


def _lock_pool(tx: Tx, pool: PoolId) -> Record:
    query = select(fleets).where(fleets.c.pool == pool).with_for_update()
    found = record(tx, query)
    if found is None:
        tx.execute(insert(fleets).values(pool=pool, waits=0))
        found = record(tx, query)
    assert found is not None
    return found


def _change(tx: Tx, worker_id: WorkerId, changed: dict[str, Any]) -> None:
    if tx.execute(update(workers).where(workers.c.id == worker_id).values(changed)).rowcount == 0:
        raise StaleWrite(f"there is no worker {worker_id!r} any more")
