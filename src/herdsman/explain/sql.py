"""Queries that explain why a job waits."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from herdsman.db.connection import Tx, record, records
from herdsman.db.schema import cycles, gpus, worker_gpus, worker_models, workers
from herdsman.db.statements import MOST_LISTED
from herdsman.ids import PoolId, WorkerId
from herdsman.leases.rules import GpuUsage, LeasePolicy, LeaseSpec, RefusalReason, free_mb, refusal_reason
from herdsman.leases.sql import to_gpu, usages_of
from herdsman.states import WorkerStatus


@dataclass(frozen=True, slots=True)
class Narrow:
    """Why a free worker's GPUs cannot take a job."""

    worker_id: WorkerId
    free_mb: int
    reason: RefusalReason


def last_cycle(tx: Tx) -> tuple[datetime, str] | None:
    """When the last recorded cycle began, and why it was skipped, if it was."""
    query = select(cycles.c.started_at, cycles.c.summary).order_by(cycles.c.id.desc()).limit(1)
    row = record(tx, query)
    return None if row is None else (row["started_at"], str(row["summary"].get("skipped") or ""))


def holders_of(tx: Tx, pool: PoolId, model: str) -> frozenset[str]:
    """The active workers of the pool that have the model loaded."""
    query = (
        select(workers.c.id)
        .join(worker_models, worker_models.c.worker_id == workers.c.id)
        .where(workers.c.pool == pool, workers.c.status == WorkerStatus.ACTIVE.value, worker_models.c.model == model)
    )
    return frozenset(str(row["id"]) for row in records(tx, query))


def too_narrow(tx: Tx, free: Sequence[WorkerId], wanted_mb: int | None, policy: LeasePolicy) -> Sequence[Narrow] | None:
    """Why the GPUs of each of these workers cannot take the job; None when one of them can. Nothing is locked."""
    own: defaultdict[WorkerId, list[GpuUsage]] = defaultdict(list)
    for start in range(0, len(free), MOST_LISTED):
        some = worker_gpus.c.worker_id.in_(free[start : start + MOST_LISTED])
        pairs = records(tx, select(worker_gpus.c.worker_id, worker_gpus.c.uuid).where(some))
        rows = tx.execute(select(gpus).where(gpus.c.uuid.in_([each["uuid"] for each in pairs])))
        usages = {each.gpu.uuid: each for each in usages_of(tx, [to_gpu(row) for row in rows])}
        for each in pairs:
            if each["uuid"] in usages:
                own[WorkerId(each["worker_id"])].append(usages[each["uuid"]])
    found: list[Narrow] = []
    for worker in free:
        exclusive = wanted_mb is None
        spec = LeaseSpec(memory_mb=wanted_mb or 0, exclusive=exclusive, worker_id=worker)
        reasons = (refusal_reason(each, spec, tx.now(), policy) for each in own[worker])
        reason = next(filter(None, reasons), None)
        whole = LeaseSpec(memory_mb=0, exclusive=True, worker_id=worker)
        # A worker with nothing of others on its GPUs takes any job.
        if reason is None or all(refusal_reason(each, whole, tx.now(), policy) is None for each in own[worker]):
            return None
        found.append(Narrow(worker, min(free_mb(each, policy, worker) for each in own[worker]), reason))
    return found or None
