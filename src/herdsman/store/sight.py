"""What the control loop reads: one look at pools, workers and the jobs they hold."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import func, select

from herdsman.core.fleet import HeldJob, SeenPool, SeenWorker
from herdsman.core.instances import InstanceRef
from herdsman.core.model import ClaimKey, JobId, PoolId, WorkerId
from herdsman.core.policy import FleetPolicy
from herdsman.core.states import HELD, WORKER, JobState, WorkerState
from herdsman.store.database import Tx
from herdsman.store.jobs import seconds
from herdsman.store.reading import Record, records
from herdsman.store.schema import fleets, job_attempts, jobs, workers

REMEMBERED = timedelta(hours=1)
"""How long a terminated worker is still looked at: its instance may come back from the dead in a listing."""


def see_workers(tx: Tx) -> tuple[SeenWorker, ...]:
    last_end = select(func.max(job_attempts.c.ended_at)).where(job_attempts.c.worker_id == workers.c.id)
    recent = workers.c.entered_state_at > tx.now() - REMEMBERED
    query = select(workers, last_end.scalar_subquery().label("last_end")).where(
        workers.c.status.in_([state.value for state in WORKER.live]) | recent
    )
    held = _held_jobs(tx)
    return tuple(_to_worker(row, held) for row in records(tx, query))


def see_pools(tx: Tx, policies: Mapping[PoolId, FleetPolicy], window: timedelta) -> tuple[SeenPool, ...]:
    queued = _count(tx, _queued())
    since = tx.now() - window
    failed = _count(tx, _workers_since(workers.c.failed_at, since))
    promoted = _count(tx, _workers_since(workers.c.promoted_at, since))
    known = {row["pool"]: row for row in records(tx, select(fleets))}
    return tuple(
        _to_pool(pool, policy, known.get(pool, {}), queued=queued, failed=failed, promoted=promoted)
        for pool, policy in policies.items()
    )


def _queued() -> Any:
    return (
        select(jobs.c.pool, func.count().label("count"))
        .where(jobs.c.status == JobState.PENDING.value)
        .group_by(jobs.c.pool)
    )


def _workers_since(column: Any, since: datetime) -> Any:
    return select(workers.c.pool, func.count().label("count")).where(column > since).group_by(workers.c.pool)


def _count(tx: Tx, query: Any) -> Mapping[str, int]:
    return {row["pool"]: int(row["count"]) for row in records(tx, query)}


def _to_pool(
    pool: PoolId,
    policy: FleetPolicy,
    row: Record,
    *,
    queued: Mapping[str, int],
    failed: Mapping[str, int],
    promoted: Mapping[str, int],
) -> SeenPool:
    return SeenPool(
        id=pool,
        policy=policy,
        queued=queued.get(pool, 0),
        failures=failed.get(pool, 0),
        starts=failed.get(pool, 0) + promoted.get(pool, 0),
        last_scaled_at=row.get("last_scaled_at"),
        wait_until=row.get("wait_until"),
        stopped_by=row.get("stopped_by"),
    )


def _held_jobs(tx: Tx) -> Mapping[str, HeldJob]:
    columns = (
        jobs.c.job_id,
        jobs.c.claim_token,
        jobs.c.worker_id,
        jobs.c.claimed_at,
        jobs.c.started_at,
        jobs.c.progress_at,
        jobs.c.timeout_s,
    )
    query = select(*columns).where(jobs.c.status.in_([state.value for state in HELD]))
    return {row["worker_id"]: _to_held(row) for row in records(tx, query)}


def _to_held(row: Record) -> HeldJob:
    """Stuck is counted from the last progress; a job that never started counts from its claim (L1-12)."""
    return HeldJob(
        key=ClaimKey(JobId(row["job_id"]), row["claim_token"]),
        since=row["progress_at"] or row["started_at"] or row["claimed_at"],
        timeout=seconds(row["timeout_s"]),
    )


def _to_worker(row: Record, held: Mapping[str, HeldJob]) -> SeenWorker:
    return SeenWorker(
        id=WorkerId(row["id"]),
        pool=PoolId(row["pool"]),
        state=WorkerState(row["status"]),
        created_at=row["created_at"],
        entered_state_at=row["entered_state_at"],
        instance_name=row["instance_name"],
        instance_ref=None if row["instance_ref"] is None else InstanceRef(row["instance_ref"]),
        last_heartbeat=row["last_heartbeat"],
        ready=bool(row["ready"]),
        gpu_seen=None if row["gpu_seen"] is None else bool(row["gpu_seen"]),
        gpu_fault=row["gpu_fault"],
        vram_at=row["vram_at"],
        job=held.get(row["id"]),
        idle_since=_latest((row["last_end"], row["promoted_at"])),
        jobs_done=0 if row["last_end"] is None else 1,
        end_asked_at=row["end_asked_at"],
        absent_since=row["absent_since"],
        cost_per_hour=Decimal(str(row["cost_per_hour"] or 0)),
    )


def _latest(instants: Iterable[datetime | None]) -> datetime | None:
    return max((each for each in instants if each is not None), default=None)


def absent_now(seen: Sequence[SeenWorker], names: set[str]) -> tuple[list[WorkerId], list[WorkerId]]:
    """Workers that a complete listing has newly lost, and those that it has again."""
    living = [each for each in seen if each.alive and each.instance_name is not None]
    lost = [each.id for each in living if each.instance_name not in names and each.absent_since is None]
    back = [each.id for each in living if each.instance_name in names and each.absent_since is not None]
    return lost, back
