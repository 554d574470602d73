"""What has to be known to say what a waiting job waits for."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from sqlalchemy import select

from herdsman.db.connection import Tx, record, records
from herdsman.db.schema import cycles, gpus, worker_gpus, worker_models, workers
from herdsman.db.statements import MOST_LISTED
from herdsman.ids import PoolId, WorkerId
from herdsman.leases.gpus_sql import columns, standings, to_gpu
from herdsman.leases.rules import LeasePolicy, Obstacle, Standing, Wish, free_mb, obstacle
from herdsman.states import WorkerState

REMEMBERED = 50


@dataclass(frozen=True, slots=True)
class Ran:
    """The last recorded cycle."""

    at: datetime
    skipped: str


@dataclass(frozen=True, slots=True)
class Boots:
    count: int
    usual: timedelta
    """Half of them took no longer."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """Why a free worker's GPUs cannot take a job."""

    worker_id: WorkerId
    free_mb: int
    obstacle: Obstacle


def last_cycle(tx: Tx) -> Ran | None:
    query = select(cycles.c.started_at, cycles.c.summary).order_by(cycles.c.id.desc()).limit(1)
    row = record(tx, query)
    return None if row is None else Ran(row["started_at"], str(row["summary"].get("skipped") or ""))


def boots(tx: Tx, pool: PoolId) -> Boots | None:
    """How long the last workers of the pool took from their row to their first job."""
    query = (
        select(workers.c.created_at, workers.c.promoted_at)
        .where(workers.c.pool == pool, workers.c.promoted_at.is_not(None))
        .order_by(workers.c.created_at.desc())
        .limit(REMEMBERED)
    )
    took = [row["promoted_at"] - row["created_at"] for row in records(tx, query)]
    return Boots(len(took), median(took)) if took else None


def holders_of(tx: Tx, pool: PoolId, model: str) -> frozenset[str]:
    """The active workers of the pool that have the model loaded."""
    query = (
        select(workers.c.id)
        .join(worker_models, worker_models.c.worker_id == workers.c.id)
        .where(
            workers.c.pool == pool,
            workers.c.status == WorkerState.ACTIVE.value,
            worker_models.c.model == model,
        )
    )
    return frozenset(str(row["id"]) for row in records(tx, query))


def too_narrow(
    tx: Tx, free: Sequence[WorkerId], wanted_mb: int | None, policy: LeasePolicy
) -> Sequence[Narrow] | None:
    """Of each of these workers what keeps the job from its GPUs; None when one of them has room. Nothing is locked."""
    theirs = _gpus_of(tx, free)
    found: list[Narrow] = []
    for worker in free:
        narrow = _narrow(tx, worker, theirs.get(worker, ()), wanted_mb, policy)
        if narrow is None:
            return None
        found.append(narrow)
    return found or None


def _narrow(
    tx: Tx, worker: WorkerId, own: Sequence[Standing], wanted_mb: int | None, policy: LeasePolicy
) -> Narrow | None:
    """As jobs are given out: a worker whose GPUs nobody else is on takes any job."""
    whole = Wish(memory_mb=0, exclusive=True, worker_id=worker)
    if all(obstacle(each, whole, tx.now(), policy) is None for each in own):
        return None
    wish = whole if wanted_mb is None else Wish(memory_mb=wanted_mb, worker_id=worker)
    first = next((found for each in own if (found := obstacle(each, wish, tx.now(), policy))), None)
    return (
        None if first is None else Narrow(worker, min(free_mb(each, policy, worker) for each in own), first)
    )


def _gpus_of(tx: Tx, free: Sequence[WorkerId]) -> Mapping[WorkerId, Sequence[Standing]]:
    found: defaultdict[WorkerId, list[Standing]] = defaultdict(list)
    for start in range(0, len(free), MOST_LISTED):
        some = worker_gpus.c.worker_id.in_(free[start : start + MOST_LISTED])
        pairs = records(tx, select(worker_gpus.c.worker_id, worker_gpus.c.uuid).where(some))
        rows: list[Any] = list(tx.execute(columns().where(gpus.c.uuid.in_([each["uuid"] for each in pairs]))))
        seen = {each.gpu.uuid: each for each in standings(tx, [to_gpu(row) for row in rows])}
        for each in pairs:
            if each["uuid"] in seen:
                found[WorkerId(each["worker_id"])].append(seen[each["uuid"]])
    return found
