"""Workers come and go; only an active one is given jobs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from herdsman import __version__
from herdsman.concurrency import TtlCache
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.errors import Conflict, InvalidRequest, NotFound, StaleWrite
from herdsman.explain.decisions import step_out
from herdsman.fleet import history_sql, leader_sql, snapshot_sql, stats_sql, workers_sql
from herdsman.fleet.wire import (
    FleetOut,
    FleetWorkerOut,
    GpuBarOut,
    HeldOut,
    LeadOut,
    OverviewOut,
    QueueOut,
    RecoveredOut,
    SeriesOut,
    StepOut,
)
from herdsman.ids import DEFAULT_POOL, PoolId, WorkerId
from herdsman.jobs import sql as jobs_sql
from herdsman.jobs.rules import check_name
from herdsman.json_text import clean, encode
from herdsman.limits.rules import ALL, Pause, PauseKind
from herdsman.limits.sql import active_pauses
from herdsman.ports import Clock
from herdsman.states import WORKER, JobState, Reason, WorkerState

LONGEST_TYPE = 128
MOST_METADATA = 65_536


def register_worker(
    services: Services,
    worker_id: WorkerId,
    *,
    pool: PoolId = DEFAULT_POOL,
    instance_type: str | None = None,
    metadata: Mapping[str, object] | None = None,
) -> None:
    check_name("worker_id", worker_id, 128)
    check_name("pool", pool, 128)
    if instance_type is not None and len(clean(instance_type, LONGEST_TYPE + 1)) > LONGEST_TYPE:
        raise InvalidRequest(f"instance_type has more than {LONGEST_TYPE} characters")
    kind = None if instance_type is None else clean(instance_type, LONGEST_TYPE)
    details = metadata or {}
    encode(dict(details), what="metadata", limit=MOST_METADATA)
    try:
        services.database.transact(
            lambda tx: workers_sql.register_worker(
                tx, worker_id, pool=pool, instance_type=kind, metadata=details
            )
        )
    except Duplicate as error:
        raise Conflict(f"there is a worker {worker_id!r} already") from error


def move_worker(
    services: Services, worker_id: WorkerId, to: WorkerState, reason: Reason, *, who: str = "leader"
) -> None:
    services.database.transact(lambda tx: workers_sql.move_worker(tx, worker_id, to, reason, who))


def drain_worker(services: Services, worker_id: WorkerId, *, who: str = "admin") -> tuple[WorkerState, bool]:
    """Drain a worker: it finishes its job and exits. Its state from here on, and whether that is new."""

    def drain(tx: Tx) -> tuple[WorkerState, bool]:
        state = workers_sql.get_worker(tx, worker_id).state
        if state is WorkerState.SPAWNING:
            raise Conflict(f"worker {worker_id!r} is starting: drain it when it is active")
        if state is not WorkerState.ACTIVE:
            return state, False
        workers_sql.move_worker(tx, worker_id, WorkerState.TERMINATING, Reason.DRAINED, who)
        return WorkerState.TERMINATING, True

    return services.database.transact(drain)


def leave(services: Services, worker_id: WorkerId) -> None:
    """An active worker drains. In any other state the control loop knows, or will see the silence."""
    try:
        move_worker(services, worker_id, WorkerState.TERMINATING, Reason.DRAINED, who=f"worker:{worker_id}")
    except (StaleWrite, NotFound):
        return


def living_workers(services: Services) -> FleetOut:
    found = services.database.read(snapshot_sql.living_workers)
    same = (
        "pool",
        "status",
        "reason",
        "created_at",
        "last_heartbeat",
        "instance_type",
        "node_id",
        "cost_per_hour",
    )
    shown = tuple(
        FleetWorkerOut(
            worker_id=row["id"],
            since=row["entered_state_at"],
            error=row["error_reason"],
            jobs=tuple(
                HeldOut(**{**job, "since": job["claimed_at"]}) for job in found.held.get(row["id"], ())
            ),
            gpus=_gpus(row["metadata"]),
            **{name: row[name] for name in same},
        )
        for row in found.workers
    )
    return FleetOut(workers=shown, more=found.more)


def _gpus(metadata: Mapping[str, Any]) -> tuple[GpuBarOut, ...]:
    """As heartbeats report them. A worker that was added manually may have any metadata: what is no GPU is left out."""
    reported = metadata.get("gpus")
    devices: list[Any] = cast("list[Any]", reported) if isinstance(reported, list) else []
    found: list[GpuBarOut] = []
    for device in (cast("dict[str, Any]", each) for each in devices if isinstance(each, dict)):
        numbers = [device.get(name) for name in ("index", "used_mb", "total_mb")]
        if not all(isinstance(each, int) for each in numbers) or not isinstance(device.get("uuid"), str):
            continue
        busy = device.get("utilisation")
        bar = GpuBarOut(
            uuid=device["uuid"],
            index=device["index"],
            name=str(device.get("name") or "") or None,
            used_mb=device["used_mb"],
            total_mb=device["total_mb"],
            busy_pct=float(busy) if isinstance(busy, int | float) else None,
        )
        found.append(bar)
    return tuple(found)


HOUR = timedelta(hours=1)
POINTS = 120
READ = 60
"""Cycles that are looked through for the latest decisions."""
SHOWN = 10
MOST_SERIES = 12
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Counted:
    """What takes a look at many rows."""

    jobs: Mapping[JobState, int]
    queues: Sequence[history_sql.Queue]


def overview(services: Services) -> OverviewOut:
    return services.database.read(lambda tx: _overview(tx, _count(tx)))


class Overviews:
    """Shared by all who ask. What has to be counted is counted less often than the rest is looked at."""

    def __init__(self, services: Services, clock: Clock) -> None:
        self._database = services.database
        self._counts = TtlCache(lambda: self._database.read(_count), clock)
        self._shared = TtlCache(self._look, clock)

    def get(self) -> OverviewOut:
        return self._shared.get()

    def _look(self) -> OverviewOut:
        counted = self._counts.get()
        return self._database.read(lambda tx: _overview(tx, counted))


def _count(tx: Tx) -> Counted:
    return Counted(jobs_sql.count_by_state(tx), history_sql.read_queues(tx))


def _overview(tx: Tx, many: Counted) -> OverviewOut:
    now, term, oldest = tx.now(), leader_sql.find_leader(tx), history_sql.oldest_queued(tx)
    counted, saved = stats_sql.recovered(tx)
    living = stats_sql.living_workers(tx)
    return OverviewOut(
        now=now,
        version=__version__,
        leader=None
        if term is None or term.expires_at <= now
        else LeadOut(who=term.holder, epoch=term.epoch, since=term.acquired_at),
        jobs={state.value: count for state, count in many.jobs.items()},
        oldest_wait_s=None if oldest is None else _seconds(oldest[1], now),
        oldest_job=None if oldest is None else oldest[0],
        queue=tuple(
            QueueOut(type=each.type, pool=each.pool, queued=each.count, oldest_s=_seconds(each.oldest, now))
            for each in many.queues
        ),
        running=stats_sql.jobs_held(tx),
        workers={state.value: living.get(state, 0) for state in WORKER.states if state in WORKER.live},
        cost_per_hour=float(stats_sql.hourly_rate(tx)),
        cost_today=float(stats_sql.spent_since(tx)["day"]),
        recovered=RecoveredOut(jobs=counted, saved_gpu_seconds=saved),
        holds=tuple(hold_words(each) for each in active_pauses(tx).active),
        last_decisions=_decisions(tx),
        series=_series(history_sql.spread_over(tx, now - HOUR, POINTS)),
    )


def hold_words(hold: Pause) -> str:
    """What is stopped, by whom, why, and how it goes on."""
    scope = hold.scope.partition(":")
    what = "everything" if hold.scope == ALL else f"{scope[0]} {scope[2]}"
    option = "" if hold.scope == ALL else f" --{scope[0]} {scope[2]}"
    how = "is drained" if hold.kind is PauseKind.DRAIN else "is paused"
    why = f" ({hold.why})" if hold.why else ""
    until = "" if hold.until is None else f", until {hold.until:%Y-%m-%d %H:%M:%S} UTC"
    return f"{what} {how} by {hold.actor}{why}{until}; go on with: herdsman resume{option}"


def _decisions(tx: Tx) -> tuple[StepOut, ...]:
    """The latest steps. Equal ones are one: a fleet that waits says the same every half minute."""
    found, _ = history_sql.list_cycles(tx, lambda each: bool(each.steps), before=None, limit=READ)
    shown: dict[tuple[object, ...], StepOut] = {}
    for step in (step_out(each, step) for each in found for step in reversed(each.steps)):
        same = (step.action, step.code, step.about, step.done)
        if same in shown:
            shown[same] = shown[same].model_copy(update={"times": shown[same].times + 1})
        elif len(shown) == SHOWN:
            break
        else:
            shown[same] = step
    return tuple(shown.values())


def _series(points: Sequence[tuple[datetime, Mapping[str, Any]]]) -> SeriesOut:
    """By type where every cycle counted them; a queue that was too long for that is shown by pool.

    Those with the most jobs first; what is too much for a plot is one together.
    """
    by_type = all(summary.get("types") is not None for _, summary in points)
    rows: list[Mapping[str, int]] = [
        (summary["types"] if by_type else summary.get("queued", {})) for _, summary in points
    ]
    status: list[Mapping[str, int]] = [summary.get("status", {}) for _, summary in points]
    totals: Counter[str] = Counter()
    for row in rows:
        totals.update(row)
    names = sorted(totals, key=lambda name: (-totals[name], name))
    columns = {name: tuple(row.get(name, 0) for row in rows) for name in names[:MOST_SERIES]}
    if rest := names[MOST_SERIES:]:
        columns[OTHERS] = tuple(sum(row.get(name, 0) for name in rest) for row in rows)
    return SeriesOut(
        by="type" if by_type else "pool",
        at=tuple(at for at, _ in points),
        queued=columns,
        # The loop's own count leaves out pools that it does not keep; what waits for them waits, too.
        total=tuple(
            sum(row.values()) if by_type else each.get("queued_tasks", 0)
            for row, each in zip(rows, status, strict=True)
        ),
        running=tuple(summary.get("running") for _, summary in points),
        active=tuple(each.get("active_workers", 0) for each in status),
    )


def _seconds(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())
