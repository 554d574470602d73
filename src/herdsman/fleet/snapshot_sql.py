"""What the control loop reads: one look at pools, workers and the jobs they hold."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import bindparam, exists, func, select

from herdsman.db.connection import Record, Tx, record, records
from herdsman.db.schema import fleets, instances, job_attempts, jobs, workers
from herdsman.db.statements import PreparedStatement, Row, one_of
from herdsman.fleet import stats_sql
from herdsman.fleet.model import FleetPolicy, InstanceRef
from herdsman.fleet.scaling.observation import Demand
from herdsman.fleet.scaling.registry import forecasts
from herdsman.fleet.snapshot import HeldJob, SeenPool, SeenWorker
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs.model import ClaimKey, FailureClass
from herdsman.jobs.sql import seconds
from herdsman.limits import sql as limits_sql
from herdsman.states import HELD, WORKER, JobState, WorkerState

REMEMBERED = timedelta(hours=1)
"""How long a terminated worker is still looked at: its instance may come back from the dead in a listing."""
MOST_REMEMBERED = 100
_LAST_END = select(func.max(job_attempts.c.ended_at)).where(job_attempts.c.worker_id == workers.c.id)
_SEEN = (
    workers.c.id,
    workers.c.pool,
    workers.c.status,
    workers.c.created_at,
    workers.c.entered_state_at,
    workers.c.instance_name,
    workers.c.instance_ref,
    workers.c.last_heartbeat,
    workers.c.ready,
    workers.c.gpu_seen,
    workers.c.gpu_fault,
    workers.c.vram_at,
    workers.c.disk_total_mb,
    workers.c.disk_free_mb,
    workers.c.promoted_at,
    workers.c.end_asked_at,
    workers.c.absent_since,
    workers.c.error_code,
    workers.c.listed_at,
    workers.c.registered_at,
    workers.c.cost_per_hour,
    workers.c.revision,
    workers.c.wanted_revision,
    _LAST_END.scalar_subquery().label("last_end"),
)
ONE = PreparedStatement(select(*_SEEN).where(workers.c.id == bindparam("b_id")))
LIVING = PreparedStatement(select(*_SEEN).where(one_of(workers.c.status, WORKER.live)))
# Found by the end of their instances, for which there is an index.
ENDED = PreparedStatement(
    select(*_SEEN)
    .join(instances, instances.c.worker_id == workers.c.id)
    .where(instances.c.ended_at > bindparam("b_since"), one_of(workers.c.status, WORKER.terminal))
    .order_by(instances.c.ended_at.desc())
    .limit(MOST_REMEMBERED)
)
HOLDING = PreparedStatement(
    select(
        jobs.c.worker_id,
        jobs.c.job_id,
        jobs.c.claim_token,
        jobs.c.claimed_at,
        jobs.c.started_at,
        jobs.c.progress_at,
        jobs.c.timeout_s,
    ).where(one_of(jobs.c.status, HELD))
)
FLEETS = PreparedStatement(
    select(fleets.c.pool, fleets.c.last_scaled_at, fleets.c.wait_until, fleets.c.stopped_by)
)
QUEUED = PreparedStatement(
    select(jobs.c.pool, func.count()).where(jobs.c.status == JobState.PENDING.value).group_by(jobs.c.pool)
)


def _since(column: Any) -> PreparedStatement:
    happened = column > bindparam("b_since")
    return PreparedStatement(select(workers.c.pool, func.count()).where(happened).group_by(workers.c.pool))


FAILED_SINCE, PROMOTED_SINCE = _since(workers.c.failed_at), _since(workers.c.promoted_at)
# The job itself is to blame for the other ends, or nobody is.
_BLAMED = (
    FailureClass.JOB_ERROR,
    FailureClass.OUT_OF_MEMORY,
    FailureClass.INFRASTRUCTURE,
    FailureClass.TIMEOUT,
)
FAILED_LATELY = PreparedStatement(
    select(job_attempts.c.worker_id, func.count())
    .join(workers, workers.c.id == job_attempts.c.worker_id)
    .where(
        workers.c.status == WorkerState.ACTIVE.value,
        job_attempts.c.ended_at > bindparam("b_since"),
        one_of(job_attempts.c.failure_class, _BLAMED),
    )
    .group_by(job_attempts.c.worker_id)
    .having(func.count() >= bindparam("b_least"))
)
_AFTER = job_attempts.alias("after_it")
FAILED_IN_A_ROW = PreparedStatement(
    select(func.count())
    .select_from(job_attempts)
    .where(
        job_attempts.c.worker_id == bindparam("b_worker"),
        job_attempts.c.ended_at > bindparam("b_since"),
        one_of(job_attempts.c.failure_class, _BLAMED),
        ~exists(
            select(_AFTER.c.job_id).where(
                _AFTER.c.worker_id == job_attempts.c.worker_id,
                _AFTER.c.ended_at > job_attempts.c.ended_at,
                _AFTER.c.outcome == JobState.DONE.value,
            )
        ),
    )
)


def see_workers(tx: Tx, policies: Iterable[FleetPolicy] = ()) -> tuple[SeenWorker, ...]:
    """All that live, and some that have ended lately; `policies` say which failures in a row are counted."""
    held: dict[str, list[HeldJob]] = {}
    for row in tx.rows(HOLDING, {}):
        held.setdefault(row[0], []).append(_to_held(row))
    failed = _failed_in_a_row(tx, list(policies) or [FleetPolicy()])
    found = [*tx.rows(LIVING, {}), *tx.rows(ENDED, {"b_since": tx.now() - REMEMBERED})]
    return tuple(_to_worker(row, held, failed) for row in found)


def see_worker(tx: Tx, worker_id: WorkerId) -> SeenWorker:
    """Without the jobs that it holds."""
    (row,) = tx.rows(ONE, {"b_id": worker_id})
    return _to_worker(row, {}, {})


def _failed_in_a_row(tx: Tx, policies: Sequence[FleetPolicy]) -> Mapping[str, int]:
    """Few workers have failed enough jobs to be worth the exact count."""
    since = tx.now() - max(each.job_failure_window for each in policies)
    least = min(each.max_failed_in_a_row for each in policies)
    suspects = tx.rows(FAILED_LATELY, {"b_since": since, "b_least": least})
    return {
        worker: tx.rows(FAILED_IN_A_ROW, {"b_worker": worker, "b_since": since})[0][0]
        for worker, _ in suspects
    }


def see_pools(tx: Tx, policies: Mapping[PoolId, FleetPolicy]) -> tuple[SeenPool, ...]:
    held = limits_sql.standing_holds(tx)
    queued = _count(tx, _queued(held.types)) if held.types else _counted(tx, QUEUED)
    known = {row[0]: row for row in tx.rows(FLEETS, {})}
    windows = {policy.failure_window for policy in policies.values()}
    failed = {window: _counted(tx, FAILED_SINCE, b_since=tx.now() - window) for window in windows}
    promoted = {window: _counted(tx, PROMOTED_SINCE, b_since=tx.now() - window) for window in windows}
    return tuple(
        _to_pool(
            pool,
            policy,
            known.get(pool, (pool, None, None, None)),
            queued={} if held.pauses(pool) else queued,
            drained=held.drained,
            failed=failed[policy.failure_window],
            promoted=promoted[policy.failure_window],
            known=stats_sql.observed_demand(tx, pool) if forecasts(policy) else None,
        )
        for pool, policy in policies.items()
    )


def _queued(held: frozenset[str]) -> Any:
    """What is held waits for nobody: no worker is missing for it, and none is to blame that it waits."""
    query = select(jobs.c.pool, func.count().label("count")).where(jobs.c.status == JobState.PENDING.value)
    given = query.where(jobs.c.type.not_in(sorted(held))) if held else query
    return given.group_by(jobs.c.pool)


def _counted(tx: Tx, hot: PreparedStatement, **values: Any) -> Mapping[str, int]:
    return {pool: int(count) for pool, count in tx.rows(hot, values)}


def _count(tx: Tx, query: Any) -> Mapping[str, int]:
    return {row["pool"]: int(row["count"]) for row in records(tx, query)}


def _to_pool(
    pool: PoolId,
    policy: FleetPolicy,
    row: Row,
    *,
    queued: Mapping[str, int],
    drained: str | None,
    failed: Mapping[str, int],
    promoted: Mapping[str, int],
    known: Demand | None,
) -> SeenPool:
    _, last_scaled_at, wait_until, stopped_by = row
    return SeenPool(
        id=pool,
        policy=policy,
        queued=queued.get(pool, 0),
        failures=failed.get(pool, 0),
        starts=failed.get(pool, 0) + promoted.get(pool, 0),
        last_scaled_at=last_scaled_at,
        wait_until=wait_until,
        stopped_by=stopped_by,
        drained=drained,
        demand=known,
    )


def _to_held(row: Row) -> HeldJob:
    """Stuck is counted from the last progress; a job that never started counts from its claim (L1-12)."""
    _, job_id, claim_token, claimed_at, started_at, progress_at, timeout_s = row
    return HeldJob(
        key=ClaimKey(JobId(job_id), claim_token),
        since=progress_at or started_at or claimed_at,
        timeout=seconds(timeout_s),
        begun=claimed_at,
    )


def _to_worker(row: Row, held: Mapping[str, Sequence[HeldJob]], failed: Mapping[str, int]) -> SeenWorker:
    """By position: there may be ten thousand of them."""
    (
        worker_id, pool, status, created_at, entered_state_at, instance_name, instance_ref, last_heartbeat,
        ready, gpu_seen, gpu_fault, vram_at, disk_total_mb, disk_free_mb, promoted_at, end_asked_at, absent_since, error_code,
        listed_at, registered_at,
        cost_per_hour, revision, wanted_revision, last_end,
    ) = row  # fmt: skip
    mine = sorted(held.get(worker_id, ()), key=_moved)
    return SeenWorker(
        id=WorkerId(worker_id),
        pool=PoolId(pool),
        state=WorkerState(status),
        created_at=created_at,
        entered_state_at=entered_state_at,
        instance_name=instance_name,
        instance_ref=None if instance_ref is None else InstanceRef(instance_ref),
        last_heartbeat=last_heartbeat,
        ready=None if ready is None else bool(ready),
        gpu_seen=None if gpu_seen is None else bool(gpu_seen),
        gpu_fault=gpu_fault,
        vram_at=vram_at,
        disk_total_gb=None if disk_total_mb is None else disk_total_mb / 1000,
        disk_free_gb=None if disk_free_mb is None else disk_free_mb / 1000,
        job=mine[-1] if mine else None,
        batch=tuple(mine[:-1]),
        failed_in_a_row=failed.get(worker_id, 0),
        idle_since=_latest((last_end, promoted_at)),
        jobs_done=0 if last_end is None else 1,
        end_asked_at=end_asked_at,
        absent_since=absent_since,
        error_code=error_code,
        listed_at=listed_at,
        registered_at=registered_at,
        cost_per_hour=Decimal(str(cost_per_hour or 0)),
        revision=revision,
        wanted_revision=wanted_revision,
    )


def _moved(job: HeldJob) -> datetime:
    return job.since


def _latest(instants: Iterable[datetime | None]) -> datetime | None:
    return max((each for each in instants if each is not None), default=None)


@dataclass(frozen=True, slots=True)
class Listed:
    """What a complete listing says that was not known of living workers."""

    lost: tuple[WorkerId, ...] = ()
    back: tuple[WorkerId, ...] = ()
    new: tuple[WorkerId, ...] = ()
    """For the first time."""

    def __bool__(self) -> bool:
        return bool(self.lost or self.back or self.new)


def listed_now(seen: Sequence[SeenWorker], names: set[str]) -> Listed:
    living = [each for each in seen if each.alive and each.instance_name is not None]
    there = [each for each in living if each.instance_name in names]
    return Listed(
        lost=tuple(
            each.id for each in living if each.instance_name not in names and each.absent_since is None
        ),
        back=tuple(each.id for each in there if each.absent_since is not None),
        new=tuple(each.id for each in there if each.listed_at is None),
    )


MOST = 200
_LIVES = workers.c.status.in_([state.value for state in WORKER.live])


@dataclass(frozen=True, slots=True)
class LivingWorkers:
    workers: Sequence[Record]
    held: Mapping[str, Sequence[Record]]
    """By the worker."""
    more: int


def living_workers(tx: Tx) -> LivingWorkers:
    """By pool and age."""
    order = (workers.c.pool, workers.c.created_at, workers.c.id)
    found = records(tx, select(workers).where(_LIVES).order_by(*order).limit(MOST))
    total = record(tx, select(func.count().label("count")).select_from(workers).where(_LIVES))
    assert total is not None
    return LivingWorkers(found, _held(tx, [row["id"] for row in found]), int(total["count"]) - len(found))


def _held(tx: Tx, listed: Sequence[str]) -> Mapping[str, Sequence[Record]]:
    held: defaultdict[str, list[Record]] = defaultdict(list)
    if not listed:
        return held
    columns = ("worker_id", "job_id", "type", "status", "progress", "progress_note", "claimed_at")
    query = select(*(jobs.c[name] for name in columns)).where(jobs.c.worker_id.in_(listed))
    for row in records(tx, query.order_by(jobs.c.worker_id, jobs.c.slot)):
        held[row["worker_id"]].append(row)
    return held


def worker_starts(tx: Tx, listed: Sequence[str]) -> Mapping[str, Record]:
    """When these workers came, when they went to work, and what an hour of them costs."""
    columns: list[Any] = [workers.c.id, workers.c.created_at, workers.c.promoted_at, workers.c.cost_per_hour]
    query = select(*columns).where(workers.c.id.in_(listed))
    return {row["id"]: row for row in records(tx, query)} if listed else {}
