"""What the control loop reads: pools, workers and the jobs they hold."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import and_, bindparam, exists, func, select, union_all

from herdsman.db.connection import Record, Tx, records, values
from herdsman.db.schema import fleets, instances, job_ends, jobs, past_attempts, workers
from herdsman.db.statements import PreparedStatement, Row, in_state, one_of
from herdsman.fleet import stats_sql
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.scaling import forecasts
from herdsman.fleet.snapshot import ClaimedJob, PoolSnapshot, WorkerSnapshot
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs.model import ClaimKey, FailureClass
from herdsman.limits import sql as limits_sql
from herdsman.states import WORKER, JobStatus, WorkerStatus
from herdsman.wire import span

REMEMBERED = timedelta(hours=1)
"""How long a terminated worker is still looked at: its instance may come back from the dead in a listing."""
MOST_REMEMBERED = 100
_LAST_ENDS = (
    select(func.max(jobs.c.finished_at)).where(jobs.c.last_worker_id == workers.c.id, jobs.c.finished_at.is_not(None)),
    select(func.max(past_attempts.c.ended_at)).where(past_attempts.c.worker_id == workers.c.id),
)
_SAME = tuple(each.name for each in fields(WorkerSnapshot) if each.name in workers.c)
"""Fields of a worker's snapshot that have a column of their name."""
_OTHER = ("disk_total_mb", "disk_free_mb", "promoted_at")
_SEEN = (*(workers.c[name] for name in (*_SAME, *_OTHER)), *(each.scalar_subquery() for each in _LAST_ENDS))
LIVING = PreparedStatement(select(*_SEEN).where(one_of(workers.c.status, WORKER.live)))
# Found by the end of their instances, for which there is an index.
ENDED = PreparedStatement(
    select(*_SEEN)
    .join(instances, instances.c.worker_id == workers.c.id)
    .where(instances.c.ended_at > bindparam("b_since"), one_of(workers.c.status, WORKER.terminal))
    .order_by(instances.c.ended_at.desc())
    .limit(MOST_REMEMBERED)
)
_HELD = ("worker_id", "job_id", "claim_token", "claimed_at", "started_at", "progress_at", "timeout_s")
# Backwards, so that what a lost worker had taken ahead goes back before the job that it was at.
HOLDING = PreparedStatement(
    select(*(jobs.c[name] for name in _HELD))
    .where(jobs.c.worker_id.is_not(None))
    .order_by(jobs.c.claimed_at.desc(), jobs.c.slot.desc())
)
FLEETS = PreparedStatement(select(fleets.c.pool, fleets.c.last_scaled_at, fleets.c.wait_until, fleets.c.stopped_by))


# The job itself is to blame for the other ends, or nobody is.
_BLAMED = (FailureClass.JOB_ERROR, FailureClass.OUT_OF_MEMORY, FailureClass.INFRASTRUCTURE, FailureClass.TIMEOUT)
_FAILED_LAST = (
    select(jobs.c.last_worker_id.label("worker_id"), jobs.c.finished_at.label("ended_at"), job_ends.c.failure_class)
    .join(job_ends, and_(job_ends.c.job_id == jobs.c.job_id, job_ends.c.claim_token == jobs.c.claim_token))
    .where(
        # Those that went well are not even read.
        in_state(jobs.c.status, JobStatus.DEAD_LETTER, JobStatus.CANCELLED),
        jobs.c.claimed_at.is_not(None),
        jobs.c.finished_at > bindparam("b_since"),
    )
)
_PAST = past_attempts.c
_FAILED_PAST = (
    select(_PAST.worker_id, _PAST.ended_at, job_ends.c.failure_class)
    .join(job_ends, and_(job_ends.c.job_id == _PAST.job_id, job_ends.c.claim_token == _PAST.claim_token))
    .where(_PAST.ended_at > bindparam("b_since"))
)
_FAILED = union_all(_FAILED_LAST, _FAILED_PAST).subquery()
FAILED_LATELY = PreparedStatement(
    select(_FAILED.c.worker_id, func.count())
    .join(workers, workers.c.id == _FAILED.c.worker_id)
    .where(workers.c.status == WorkerStatus.ACTIVE.value, one_of(_FAILED.c.failure_class, _BLAMED))
    .group_by(_FAILED.c.worker_id)
    .having(func.count() >= bindparam("b_least"))
)
_FAILED_HERE = union_all(
    _FAILED_LAST.where(jobs.c.last_worker_id == bindparam("b_worker")),
    _FAILED_PAST.where(_PAST.worker_id == bindparam("b_worker")),
).subquery()
_AFTER, _PAST_AFTER = jobs.alias("after_it"), past_attempts.alias("past_after_it")
FAILED_IN_A_ROW = PreparedStatement(
    select(func.count())
    .select_from(_FAILED_HERE)
    .where(
        one_of(_FAILED_HERE.c.failure_class, _BLAMED),
        ~exists(
            select(_AFTER.c.job_id).where(
                _AFTER.c.last_worker_id == bindparam("b_worker"),
                _AFTER.c.finished_at > _FAILED_HERE.c.ended_at,
                _AFTER.c.status == JobStatus.DONE.value,
            )
        ),
        ~exists(
            select(_PAST_AFTER.c.job_id).where(
                _PAST_AFTER.c.worker_id == bindparam("b_worker"),
                _PAST_AFTER.c.ended_at > _FAILED_HERE.c.ended_at,
                _PAST_AFTER.c.outcome == JobStatus.DONE.value,
            )
        ),
    )
)


def read_workers(tx: Tx, policies: Iterable[FleetPolicy] = ()) -> tuple[WorkerSnapshot, ...]:
    """All that live, and some that have ended lately; `policies` say which failures in a row are counted."""
    held: defaultdict[str, list[ClaimedJob]] = defaultdict(list)
    for worker_id, job_id, token, claimed_at, started_at, progress_at, timeout_s in tx.rows(HOLDING, {}):
        key = ClaimKey(JobId(job_id), token)
        # Stuck is counted from the last progress; a job that never started counts from its claim (L1-12).
        since = progress_at or started_at or claimed_at
        held[worker_id].append(ClaimedJob(key=key, since=since, timeout=span(timeout_s), begun=claimed_at))
    known: Sequence[FleetPolicy] = list(policies) or [FleetPolicy()]
    since = tx.now() - max(each.job_failure_window for each in known)
    least = min(each.max_failed_in_a_row for each in known)
    # Few workers have failed enough jobs to be worth the exact count.
    failed = {
        worker: tx.rows(FAILED_IN_A_ROW, {"b_worker": worker, "b_since": since})[0][0]
        for worker, _ in tx.rows(FAILED_LATELY, {"b_since": since, "b_least": least})
    }
    found = [*tx.rows(LIVING, {}), *tx.rows(ENDED, {"b_since": tx.now() - REMEMBERED})]
    return tuple(_to_worker(row, held, failed) for row in found)


def read_worker(tx: Tx, worker_id: WorkerId) -> WorkerSnapshot:
    """Without the jobs that it holds."""
    (row,) = tx.execute(select(*_SEEN).where(workers.c.id == worker_id))
    return _to_worker(tuple(row), {}, {})


def read_pools(tx: Tx, policies: Mapping[PoolId, FleetPolicy]) -> tuple[PoolSnapshot, ...]:
    paused = limits_sql.active_pauses(tx)
    queued = stats_sql.depths(tx)
    if paused.types:
        # Paused types wait for nobody: no worker is missing for them, and none is to blame that they wait.
        ready = in_state(jobs.c.status, JobStatus.PENDING), jobs.c.type.not_in(sorted(paused.types))
        counted = select(jobs.c.pool, func.count().label("count")).where(*ready).group_by(jobs.c.pool)
        queued = {row["pool"]: int(row["count"]) for row in records(tx, counted)}
    known = {row[0]: row for row in tx.rows(FLEETS, {})}
    windows = {policy.failure_window for policy in policies.values()}
    failed, promoted = (
        {window: stats_sql.count_by(tx, workers.c.pool, each > tx.now() - window) for window in windows}
        for each in (workers.c.failed_at, workers.c.promoted_at)
    )
    found: list[PoolSnapshot] = []
    for pool, policy in policies.items():
        _, last_scaled_at, wait_until, stopped_by = known.get(pool, (pool, None, None, None))
        failures = failed[policy.failure_window].get(pool, 0)
        found.append(
            PoolSnapshot(
                id=pool,
                policy=policy,
                queued=0 if paused.covers(pool) else queued.get(pool, 0),
                failures=failures,
                starts=failures + promoted[policy.failure_window].get(pool, 0),
                last_scaled_at=last_scaled_at,
                wait_until=wait_until,
                stopped_by=stopped_by,
                drained=paused.drained,
                demand=stats_sql.observed_demand(tx, pool) if forecasts(policy) else None,
            )
        )
    return tuple(found)


def _to_worker(row: Row, held: Mapping[str, Sequence[ClaimedJob]], failed: Mapping[str, int]) -> WorkerSnapshot:
    """By position: there may be ten thousand of them."""
    seen: dict[str, Any] = dict(zip(_SAME, row, strict=False))
    disk_total_mb, disk_free_mb, promoted_at, *ends = row[len(_SAME) :]
    last_end = max((each for each in ends if each is not None), default=None)
    seen["status"] = WorkerStatus(seen["status"])
    for flag in ("ready", "gpu_seen"):
        seen[flag] = None if seen[flag] is None else bool(seen[flag])
    seen["cost_per_hour"] = Decimal(str(seen["cost_per_hour"] or 0))
    mine = sorted(held.get(seen["id"], ()), key=lambda job: job.since)
    return WorkerSnapshot(
        **seen,
        disk_total_gb=None if disk_total_mb is None else disk_total_mb / 1000,
        disk_free_gb=None if disk_free_mb is None else disk_free_mb / 1000,
        job=mine[-1] if mine else None,
        batch=tuple(mine[:-1]),
        failed_in_a_row=failed.get(seen["id"], 0),
        idle_since=max((each for each in (last_end, promoted_at) if each is not None), default=None),
        jobs_done=0 if last_end is None else 1,
    )


@dataclass(frozen=True, slots=True)
class Listed:
    """What a complete listing says that was not known of living workers."""

    lost: tuple[WorkerId, ...] = ()
    back: tuple[WorkerId, ...] = ()
    new: tuple[WorkerId, ...] = ()
    """For the first time."""

    def __bool__(self) -> bool:
        return bool(self.lost or self.back or self.new)


def listed_now(seen: Sequence[WorkerSnapshot], names: set[str]) -> Listed:
    living = [each for each in seen if each.alive and each.instance_name is not None]
    there = [each for each in living if each.instance_name in names]
    return Listed(
        lost=tuple(each.id for each in living if each.instance_name not in names and each.absent_since is None),
        back=tuple(each.id for each in there if each.absent_since is not None),
        new=tuple(each.id for each in there if each.listed_at is None),
    )


MOST = 200
_LIVES = workers.c.status.in_([state.value for state in WORKER.live])


def living_workers(tx: Tx) -> tuple[Sequence[Record], Mapping[str, Sequence[Record]], int]:
    """The first of them by pool and age, what they hold by the worker's id, and how many more there are."""
    order = (workers.c.pool, workers.c.created_at, workers.c.id)
    found = records(tx, select(workers).where(_LIVES).order_by(*order).limit(MOST))
    (total,) = values(tx, select(func.count()).select_from(workers).where(_LIVES))
    held: defaultdict[str, list[Record]] = defaultdict(list)
    if found:
        columns = ("worker_id", "job_id", "type", "status", "progress", "progress_note", "claimed_at")
        listed = jobs.c.worker_id.in_([row["id"] for row in found])
        query = select(*(jobs.c[name] for name in columns)).where(listed)
        for row in records(tx, query.order_by(jobs.c.worker_id, jobs.c.slot)):
            held[row["worker_id"]].append(row)
    return found, held, total - len(found)


def worker_starts(tx: Tx, listed: Sequence[str]) -> Mapping[str, Record]:
    """When these workers came, when they went to work, and what an hour of them costs."""
    columns: list[Any] = [workers.c.id, workers.c.created_at, workers.c.promoted_at, workers.c.cost_per_hour]
    query = select(*columns).where(workers.c.id.in_(listed))
    return {row["id"]: row for row in records(tx, query)} if listed else {}
