"""How many there are of what metrics and people ask for; each is a count over a piece of an index."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from herdsman.db.connection import Tx, records, values
from herdsman.db.dialects import seconds_between
from herdsman.db.schema import gpus, instances, job_ends, jobs, leases, past_attempts, pools, workers
from herdsman.db.statements import Row, in_state, one_of
from herdsman.fleet.scaling import AHEAD, RECENT, SLOT, Demand
from herdsman.ids import PoolId
from herdsman.leases.rules import LeasePolicy
from herdsman.states import WORKER, JobStatus, LeaseStatus, PoolStatus, WorkerStatus

HOUR = timedelta(hours=1)
OVERDUE = timedelta(seconds=60)
"""So long after its end a claim should have been taken back, whatever went wrong."""
MOST_GPUS = 1000
_OPEN = (PoolStatus.STARTING, PoolStatus.RUNNING, PoolStatus.DRAINING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    leases: int
    expired: int
    """Leases that ran out within the last hour."""
    free: int
    """GPUs that could be leased as a whole now."""
    quarantined: int
    used_pct: Mapping[tuple[str, int], float]
    """By node and index, of those that were measured lately."""
    busy_pct: Mapping[tuple[str, int], float]


def jobs_held(tx: Tx) -> int:
    return _count(tx, jobs, jobs.c.worker_id.is_not(None))


def claims_overdue(tx: Tx) -> int:
    return _count(tx, jobs, jobs.c.worker_id.is_not(None), jobs.c.claim_expires_at < tx.now() - OVERDUE)


def recovered(tx: Tx) -> tuple[int, float]:
    """Jobs whose results were found at their service, and the GPU seconds that this spared, of those that are kept."""
    # Reads only the index of the jobs that were recovered.
    counts = sa.exists().where(jobs.c.job_id == job_ends.c.job_id, jobs.c.claim_token == job_ends.c.claim_token)
    sums = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(job_ends.c.saved_gpu_s), 0.0))
    ((count, seconds),) = _rows(tx, sums.where(job_ends.c.saved_gpu_s.is_not(None), counts))
    return int(count), float(seconds)


def living_workers(tx: Tx) -> Mapping[WorkerStatus, int]:
    found = count_by(tx, workers.c.status, one_of(workers.c.status, WORKER.live))
    return {WorkerStatus(state): count for state, count in found.items()}


def workers_by_pool(tx: Tx) -> Mapping[str, int]:
    return count_by(tx, workers.c.pool, one_of(workers.c.status, WORKER.live))


def open_pools(tx: Tx) -> list[str]:
    """Those that somebody made, and that have not ended."""
    return values(tx, sa.select(pools.c.pool_id).where(one_of(pools.c.status, _OPEN)).order_by(pools.c.pool_id))


def depths(tx: Tx) -> Mapping[str, int]:
    """Jobs that wait to be claimed, by their pool."""
    return count_by(tx, jobs.c.pool, in_state(jobs.c.status, JobStatus.PENDING))


def count_by(tx: Tx, column: sa.Column[Any], which: sa.ColumnElement[bool]) -> dict[str, int]:
    query = sa.select(column, sa.func.count()).where(which).group_by(column)
    return {value: int(count) for value, count in _rows(tx, query)}


def read_gpus(tx: Tx, policy: LeasePolicy) -> Gpus:
    now, fresh = tx.now(), gpus.c.measured_at > tx.now() - policy.silent_after
    live = (leases.c.status == LeaseStatus.ACTIVE.value, leases.c.expires_at > now)
    expired = (leases.c.status == LeaseStatus.EXPIRED.value, leases.c.expires_at > now - HOUR)
    leased = sa.exists(sa.select(leases.c.token).where(leases.c.gpu_uuid == gpus.c.uuid, *live))
    empty = (gpus.c.quarantined_at.is_(None), gpus.c.outside_mb <= policy.tolerance_mb, ~leased)
    columns = (gpus.c.node_id, gpus.c.gpu_index, gpus.c.used_mb, gpus.c.total_mb, gpus.c.utilisation)
    measured = sa.select(*columns).where(fresh).order_by(gpus.c.node_id, gpus.c.gpu_index).limit(MOST_GPUS)
    memory = _rows(tx, measured)
    return Gpus(
        leases=_count(tx, leases, *live),
        expired=_count(tx, leases, *expired),
        free=_count(tx, gpus, fresh, *empty),
        quarantined=_count(tx, gpus, gpus.c.quarantined_at.is_not(None)),
        used_pct={(node, index): 100.0 * used / total for node, index, used, total, _ in memory if total > 0},
        busy_pct={(node, index): busy for node, index, _, _, busy in memory if busy is not None},
    )


def _count(tx: Tx, table: sa.Table, *which: sa.ColumnElement[bool]) -> int:
    return int(values(tx, sa.select(sa.func.count()).select_from(table).where(*which))[0])


def _rows(tx: Tx, query: sa.Executable) -> list[Row]:
    return [tuple(row) for row in tx.execute(query)]


BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
MOST_TYPES = 200


@dataclass(frozen=True, slots=True)
class Took:
    """All jobs of one type that were done within a time."""

    type: str
    count: int
    seconds: float
    within: tuple[int, ...]
    """How many took no longer than each of the `BOUNDS`."""


def latency_totals(tx: Tx, since: datetime, until: datetime) -> Sequence[Took]:
    """Of jobs that were done after `since` and not after `until`, the busiest types first."""
    span = sa.literal_column(seconds_between(tx.dialect, "created_at", "finished_at"), sa.Float()).label("span")
    ended = (
        sa.select(jobs.c.type, span)
        .where(jobs.c.finished_at > since, jobs.c.finished_at <= until)
        .where(jobs.c.status == JobStatus.DONE.value)
        .subquery()
    )
    columns = [sa.func.sum(sa.case((ended.c.span <= bound, 1), else_=0)) for bound in BOUNDS]
    counted = sa.func.count()
    query = sa.select(ended.c.type, counted, sa.func.sum(ended.c.span), *columns)
    rows = _rows(tx, query.group_by(ended.c.type).order_by(counted.desc()).limit(MOST_TYPES))
    return [
        Took(kind, int(count), max(0.0, float(seconds)), tuple(int(each) for each in within))
        for kind, count, seconds, *within in rows
    ]


MOST_READ = 5000
"""Ends of jobs that are looked through for those of one type: no index has the types."""
PACE_SAMPLE = 500
BOOTS = 200
_PACE_ENDED = (
    sa.select(jobs.c.type, jobs.c.status, jobs.c.started_at, jobs.c.finished_at)
    .where(jobs.c.finished_at.is_not(None))
    .order_by(jobs.c.finished_at.desc())
    .limit(MOST_READ)
    .subquery()
)
_DONE = (
    sa.select(_PACE_ENDED.c.started_at, _PACE_ENDED.c.finished_at)
    .where(_PACE_ENDED.c.status == JobStatus.DONE.value, _PACE_ENDED.c.started_at.is_not(None))
    .order_by(_PACE_ENDED.c.finished_at.desc())
    .limit(PACE_SAMPLE)
)
_STARTED = (
    sa.select(workers.c.pool, workers.c.created_at, workers.c.promoted_at)
    .order_by(workers.c.created_at.desc())
    .limit(BOOTS)
)


@dataclass(frozen=True, slots=True)
class Pace:
    seconds: tuple[float, ...]
    own: bool
    """Of the very type or pool that was asked for; else of all of them."""


def job_durations(tx: Tx, kind: str) -> Pace:
    """How long the latest jobs of this type ran that were done, or where there are none, those of all types."""
    own = _seconds(_rows(tx, _DONE.where(_PACE_ENDED.c.type == kind)))
    return Pace(own, own=True) if own else Pace(_seconds(_rows(tx, _DONE)), own=False)


def boot_times(tx: Tx, pool: str) -> Pace:
    """How long the latest workers took from their row to their work."""
    found = [row for row in _rows(tx, _STARTED) if row[2] is not None]
    mine = _seconds([row[1:] for row in found if row[0] == pool])
    return Pace(mine, own=True) if mine else Pace(_seconds([row[1:] for row in found]), own=False)


def done_since(tx: Tx, since: datetime) -> int:
    return _count(tx, jobs, jobs.c.finished_at > since, jobs.c.status == JobStatus.DONE.value)


def _seconds(rows: Iterable[Row]) -> tuple[float, ...]:
    return tuple(max(0.0, (end - begin).total_seconds()) for begin, end in rows)


SAMPLE = 200
PAGE = 5000
DAY = timedelta(days=1)
_LAST = (
    *(jobs.c.job_id, jobs.c.attempts.label("attempt"), jobs.c.pool, jobs.c.status.label("outcome"), jobs.c.claimed_at),
    *(jobs.c.finished_at.label("ended_at"), jobs.c.last_worker_id.label("worker_id")),
)
"""A job's last attempt is in its row, the others are stored: they are read apart, each by its own index."""
_PAST = tuple(past_attempts.c[column.name] for column in _LAST)
_ENDED_LAST = sa.select(*_LAST).where(jobs.c.finished_at.is_not(None), jobs.c.claimed_at.is_not(None))
_ENDED = sa.union_all(
    sa.select(_ENDED_LAST.order_by(jobs.c.finished_at.desc()).limit(PAGE).subquery()),
    sa.select(sa.select(*_PAST).order_by(past_attempts.c.ended_at.desc()).limit(PAGE).subquery()),
).subquery()
# Looked through in the order of their ends, for no index has the pools.
_TOOK = sa.select(_ENDED.c.claimed_at, _ENDED.c.ended_at).where(_ENDED.c.outcome == JobStatus.DONE.value)
# A job that was tried again waited before its first attempt only; its due time may have been moved since.
_WAITED = (
    sa.select(_ENDED.c.claimed_at, jobs.c.created_at, jobs.c.run_at)
    .select_from(_ENDED.join(jobs, jobs.c.job_id == _ENDED.c.job_id))
    .where(_ENDED.c.attempt == 1)
)


def observed_demand(tx: Tx, pool: PoolId) -> Demand:
    now = tx.now()
    then, span = now - DAY, AHEAD * SLOT
    edges = [now - SLOT * each for each in range(RECENT, 0, -1)]

    def came(after: datetime, until: datetime) -> int:
        # A piece of the index by creation; what came for other pools is read in vain.
        return _count(tx, jobs, jobs.c.created_at > after, jobs.c.created_at <= until, jobs.c.pool == pool)

    before, after = came(then - span, then), came(then, then + span)

    def latest(query: Any) -> list[Row]:
        return _rows(tx, query.where(_ENDED.c.pool == pool).order_by(_ENDED.c.ended_at.desc()).limit(SAMPLE))

    due = ((run_at if run_at <= begun else created, begun) for begun, created, run_at in latest(_WAITED))
    return Demand(
        arrivals=tuple(came(each, each + SLOT) for each in edges),
        day_before=(before, after) if before or after else None,
        service_s=_seconds(latest(_TOOK)),
        boots_s=boot_times(tx, pool).seconds,
        waits_s=_seconds(due),
        failing=failing_starts(tx, pool),
    )


def failing_starts(tx: Tx, pool: PoolId) -> float:
    """The share of the latest starts that ended badly; those that have not ended say nothing."""
    query = sa.select(workers.c.promoted_at, workers.c.failed_at).where(workers.c.pool == pool)
    found = _rows(tx, query.order_by(workers.c.created_at.desc()).limit(SAMPLE))
    failed = sum(1 for promoted, wrong in found if promoted is None and wrong is not None)
    ended = failed + sum(1 for promoted, _ in found if promoted is not None)
    return failed / ended if ended else 0.0


def ended_attempts(tx: Tx, pool: PoolId, since: datetime, most: int) -> Iterator[tuple[datetime, float, str]]:
    """When each came, how many seconds it held a worker and of what type it is, by its end.

    A job that was tried again comes again.
    """
    past = sa.select(*_PAST, jobs.c.created_at, jobs.c.type).join(jobs, jobs.c.job_id == past_attempts.c.job_id)
    kinds = (
        (_ENDED_LAST.add_columns(jobs.c.created_at, jobs.c.type), jobs.c.pool, jobs.c.finished_at, jobs.c.job_id),
        (past, past_attempts.c.pool, past_attempts.c.ended_at, past_attempts.c.job_id),
    )
    last, last_id, left = since, None, most
    while left > 0:
        size = min(PAGE, left)
        pages: list[sa.Select[Any]] = []
        for query, of, at, job_id in kinds:
            after = at > last if last_id is None else sa.or_(at > last, sa.and_(at == last, job_id > last_id))
            pages.append(sa.select(query.where(of == pool, after).order_by(at, job_id).limit(size).subquery()))
        both = sa.union_all(*pages).subquery()
        columns = (both.c[each] for each in ("ended_at", "job_id", "attempt", "claimed_at", "created_at", "type"))
        page = _rows(tx, sa.select(*columns).order_by(both.c.ended_at, both.c.job_id).limit(size))
        for ended, _, attempt, claimed, created, kind in page:
            yield created if attempt == 1 else claimed, max(0.0, (ended - claimed).total_seconds()), kind
        if len(page) < size:
            return
        left -= len(page)
        last, last_id = page[-1][0], page[-1][1]


MOST_LISTED = 500
_PRICED = (instances.c.cost_per_hour, instances.c.started_at, instances.c.ended_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One instance's time with us."""

    name: str
    worker_id: str
    pool: str
    cost_per_hour: Decimal
    started_at: datetime
    ended_at: datetime | None

    def cost(self, since: datetime, until: datetime) -> Decimal:
        """Of the part that lies between."""
        begin, end = max(self.started_at, since), min(self.ended_at or until, until)
        return self.cost_per_hour * Decimal(max(0.0, (end - begin) / HOUR)).quantize(Decimal("1e-9"))


@dataclass(frozen=True, slots=True)
class Effort:
    """One attempt at a job: the time that its worker was busy with it."""

    worker_id: str
    type: str
    started_at: datetime
    ended_at: datetime | None


def instance_stays(tx: Tx, since: datetime) -> list[Stay]:
    query = sa.select(*(instances.c[each.name] for each in fields(Stay))).where(*_paid_after(since))
    found: list[dict[str, Any]] = [
        {**row, "cost_per_hour": Decimal(str(row["cost_per_hour"]))} for row in records(tx, query)
    ]
    return [Stay(**each) for each in found]


def _paid_after(since: datetime) -> tuple[sa.ColumnElement[bool], ...]:
    ended = instances.c.ended_at
    return instances.c.started_at.is_not(None), sa.or_(ended.is_(None), ended > since)


def instance_efforts(tx: Tx, workers: Sequence[str], since: datetime) -> list[Effort]:
    """What these workers were busy with since then."""
    now = sa.select(jobs.c.last_worker_id, jobs.c.type, jobs.c.claimed_at, jobs.c.finished_at)
    now = now.where(jobs.c.claimed_at.is_not(None))
    past = sa.select(past_attempts.c.worker_id, jobs.c.type, past_attempts.c.claimed_at, past_attempts.c.ended_at)
    past = past.join(jobs, jobs.c.job_id == past_attempts.c.job_id).where(past_attempts.c.ended_at > since)
    found: list[Effort] = []
    for start in range(0, len(workers), MOST_LISTED):
        some = workers[start : start + MOST_LISTED]
        queries = (
            now.where(jobs.c.worker_id.in_(some)),
            now.where(jobs.c.last_worker_id.in_(some), jobs.c.finished_at > since),
            past.where(past_attempts.c.worker_id.in_(some)),
        )
        # From plain rows: a month of a busy fleet has many of them, and a dictionary for each takes its time.
        found += [Effort(*row) for query in queries for row in tx.execute(query)]
    return found


def spent_since(tx: Tx) -> Mapping[str, Decimal]:
    """Money of the current hour and day, by the database's clock."""
    now = tx.now()
    starts = {
        "hour": now.replace(minute=0, second=0, microsecond=0),
        "day": now.replace(hour=0, minute=0, second=0, microsecond=0),
    }
    prices = _rows(tx, sa.select(*_PRICED).where(*_paid_after(starts["day"])))
    found: dict[str, Decimal] = {}
    for span, since in starts.items():
        # In floating point: every cycle asks, of every instance of the day.
        hours = ((cost, (min(ended or now, now) - max(began, since)) / HOUR) for cost, began, ended in prices)
        found[span] = Decimal(sum(cost * each for cost, each in hours if each > 0)).quantize(Decimal("1e-6"))
    return found


def hourly_rate(tx: Tx) -> Decimal:
    """What an hour of the fleet of this moment costs."""
    stays = instance_stays(tx, tx.now())
    return sum((each.cost_per_hour for each in stays if each.ended_at is None), Decimal(0))
