"""Workers come and go; the overview of the fleet; and its recorded cycles, with what a shadow policy would have done."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, cast

from pydantic import ValidationError

from herdsman import __version__
from herdsman.concurrency import TtlCache
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.errors import Conflict, InvalidRequest, NotFound, StaleWrite
from herdsman.explain.why import growth
from herdsman.fleet import history_sql, leader_sql, snapshot_sql, stats_sql, wire, workers_sql
from herdsman.fleet.history_sql import Queue, Recorded, Step
from herdsman.fleet.recording import recorded_next_worker
from herdsman.ids import DEFAULT_POOL, PoolId, WorkerId, check_name
from herdsman.jobs import sql as jobs_sql
from herdsman.json_text import clean, encode
from herdsman.limits.rules import ALL, Pause, PauseKind
from herdsman.limits.sql import active_pauses
from herdsman.ports import Clock
from herdsman.states import WORKER, JobStatus, Reason, WorkerStatus

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
            lambda tx: workers_sql.register_worker(tx, worker_id, pool=pool, instance_type=kind, metadata=details)
        )
    except Duplicate as error:
        raise Conflict(f"there is a worker {worker_id!r} already") from error


def move_worker(
    services: Services, worker_id: WorkerId, to: WorkerStatus, reason: Reason, *, who: str = "leader"
) -> None:
    services.database.transact(lambda tx: workers_sql.move_worker(tx, worker_id, to, reason, who))


def drain_worker(services: Services, worker_id: WorkerId, *, who: str = "admin") -> tuple[WorkerStatus, bool]:
    """Drain a worker: it finishes its job and exits. Its state from here on, and whether that is new."""

    def drain(tx: Tx) -> tuple[WorkerStatus, bool]:
        status = workers_sql.get_worker(tx, worker_id).status
        if status is WorkerStatus.SPAWNING:
            raise Conflict(f"worker {worker_id!r} is starting: drain it when it is active")
        if status is not WorkerStatus.ACTIVE:
            return status, False
        workers_sql.move_worker(tx, worker_id, WorkerStatus.TERMINATING, Reason.DRAINED, who)
        return WorkerStatus.TERMINATING, True

    return services.database.transact(drain)


def leave(services: Services, worker_id: WorkerId) -> None:
    """An active worker drains. In any other state the control loop knows, or will see the silence."""
    try:
        move_worker(services, worker_id, WorkerStatus.TERMINATING, Reason.DRAINED, who=f"worker:{worker_id}")
    except (StaleWrite, NotFound):
        return


def living_workers(services: Services) -> wire.FleetOut:
    found, held, more = services.database.read(snapshot_sql.living_workers)
    shown = tuple(
        wire.FleetWorkerOut.model_validate(
            {
                **row,
                "worker_id": row["id"],
                "since": row["entered_state_at"],
                "error": row["error_reason"],
                "jobs": [{**job, "since": job["claimed_at"]} for job in held.get(row["id"], ())],
                "gpus": _gpus(row["metadata"]),
            }
        )
        for row in found
    )
    return wire.FleetOut(workers=shown, more=more)


def _gpus(metadata: Mapping[str, Any]) -> list[wire.GpuBarOut]:
    """As heartbeats report them. A worker that was added manually may have any metadata: what is no GPU is left out."""
    reported = metadata.get("gpus")
    found: list[wire.GpuBarOut] = []
    for device in cast("list[Any]", reported) if isinstance(reported, list) else ():
        with suppress(ValidationError):
            found.append(wire.GpuBarOut.model_validate(device, strict=True))
    return found


HOUR = timedelta(hours=1)
POINTS = 120
READ = 60
"""Cycles that are looked through for the latest decisions."""
SHOWN = 10
MOST_SERIES = 12
OTHERS = "others"


Counted = tuple[Mapping[JobStatus, int], Sequence[Queue]]
"""Jobs by state, and the longest queues: every job that waits is looked at for them."""


class Overviews:
    """Shared by all who ask. What has to be counted is counted less often than the rest is read."""

    def __init__(self, services: Services, clock: Clock) -> None:
        def count(tx: Tx) -> Counted:
            return jobs_sql.count_by_state(tx), history_sql.read_queues(tx)

        def read() -> wire.OverviewOut:
            counted = counts.get()
            return services.database.read(lambda tx: _overview(tx, *counted))

        counts = TtlCache(lambda: services.database.read(count), clock)
        self._shared = TtlCache(read, clock)

    def get(self) -> wire.OverviewOut:
        return self._shared.get()


def _overview(tx: Tx, jobs: Mapping[JobStatus, int], queues: Sequence[Queue]) -> wire.OverviewOut:
    now, term, oldest = tx.now(), leader_sql.find_leader(tx), history_sql.oldest_queued(tx)
    counted, saved = stats_sql.recovered(tx)
    living = stats_sql.living_workers(tx)
    # The latest steps. Equal ones are one: a fleet that waits says the same every half minute.
    found, _ = history_sql.list_cycles(tx, lambda each: bool(each.steps), before=None, limit=READ)
    shown: dict[tuple[object, ...], wire.StepOut] = {}
    for step in (step_out(each, step) for each in found for step in reversed(each.steps)):
        same = (step.action, step.code, step.about, step.done)
        if same in shown:
            shown[same] = shown[same].model_copy(update={"times": shown[same].times + 1})
        elif len(shown) == SHOWN:
            break
        else:
            shown[same] = step
    return wire.OverviewOut(
        now=now,
        version=__version__,
        leader=None
        if term is None or term.expires_at <= now
        else wire.LeadOut(who=term.holder, epoch=term.epoch, since=term.acquired_at),
        jobs={status.value: count for status, count in jobs.items()},
        oldest_wait_s=None if oldest is None else _seconds(oldest[1], now),
        oldest_job=None if oldest is None else oldest[0],
        queue=tuple(
            wire.QueueOut(type=each.type, pool=each.pool, queued=each.count, oldest_s=_seconds(each.oldest, now))
            for each in queues
        ),
        running=stats_sql.jobs_held(tx),
        workers={status.value: living.get(status, 0) for status in WORKER.states if status in WORKER.live},
        cost_per_hour=float(stats_sql.hourly_rate(tx)),
        cost_today=float(stats_sql.spent_since(tx)["day"]),
        recovered=wire.RecoveredOut(jobs=counted, saved_gpu_seconds=saved),
        holds=tuple(hold_words(each) for each in active_pauses(tx).active),
        last_decisions=tuple(shown.values()),
        series=_series(history_sql.spread_over(tx, now - HOUR, POINTS)),
    )


def hold_words(hold: Pause) -> str:
    """What is stopped, by whom, why, and how it goes on."""
    scope = hold.scope.partition(":")
    what = "everything" if hold.scope == ALL else f"{scope[0]} {scope[2]}"
    option = "" if hold.scope == ALL else f" --{scope[0]} {scope[2]}"
    how = "is drained" if hold.kind is PauseKind.DRAIN else "is paused"
    reason = f" ({hold.reason})" if hold.reason else ""
    until = "" if hold.until is None else f", until {hold.until:%Y-%m-%d %H:%M:%S} UTC"
    return f"{what} {how} by {hold.actor}{reason}{until}; go on with: herdsman resume{option}"


def _series(points: Sequence[tuple[datetime, Mapping[str, Any]]]) -> wire.SeriesOut:
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
    return wire.SeriesOut(
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


NOT_RECORDED = "it was recorded by an older version, which did not store its inputs"
_DONE: Mapping[str, str] = {
    "PromoteWorker": "worker {worker_id} became active",
    "FailWorker": "marked worker {worker_id} as failed",
    "RequeueJob": "took job {job} back from worker {worker_id}",
    "DrainIdleWorker": "drained worker {worker_id}",
    "DrainWorker": "drained worker {worker_id}",
    "CancelSpawn": "cancelled the start of worker {worker_id}",
    "MovePool": "moved pool {pool} to {to}",
    "AssignModelRevision": "told worker {worker_id} to load what its pool serves now",
    "EndInstance": "asked the provider to end the machine of worker {worker_id}",
    "ConfirmTerminated": "worker {worker_id} is terminated",
    "SpawnWorker": "started a worker in pool {pool}",
    "AttachInstance": "found the machine of worker {worker_id}",
    "TerminateOrphan": "ended the orphaned machine {name}",
    "Note": "left {about} as it is",
}


def list_decisions(
    services: Services,
    *,
    after: str | None,
    limit: int,
    pool: str | None = None,
    acted: bool = False,
    shadow: bool = False,
) -> wire.DecisionsOut:
    """Newest first. `acted` leaves out cycles that did nothing, `pool` those that did not touch it.

    `shadow` selects those in which a second policy would have done something else, or raised.
    """
    if after is not None and not (after.isascii() and after.isdecimal() and len(after) <= 18):
        raise InvalidRequest(f"the cursor {after!r} is not one that we gave out")

    def wanted(each: Recorded) -> bool:
        if shadow:
            return bool(_shadows(each, pool))
        steps = _steps(each, pool)
        did = any(step["done"] and step["action"] != "Note" for step in steps)
        return (pool is None or bool(steps)) and (not acted or did)

    before = None if after is None else int(after)
    found, following = services.database.read(
        lambda tx: history_sql.list_cycles(tx, wanted, before=before, limit=limit)
    )
    rows = tuple(wire.CycleRowOut(**_row(each, pool)) for each in found)
    return wire.DecisionsOut(cycles=rows, next=None if following is None else str(following))


def find_decision(services: Services, number: int) -> wire.DecisionOut:
    found = services.database.read(lambda tx: history_sql.find_cycle(tx, number))
    if found is None:
        raise NotFound(f"there is no cycle {number}: records are kept for a week")
    note = found.inputs.get("note", "") if found.inputs else NOT_RECORDED
    pools: list[wire.PoolThenOut] = []
    for name, pool in sorted(found.inputs.get("pools", {}).items()):
        following = recorded_next_worker(pool.get("next"))
        said = () if following is None else growth(following)
        pools.append(wire.PoolThenOut(pool=name, queued=pool["queued"], workers=pool["workers"], would=said))
    return wire.DecisionOut(**_row(found, None), pools=tuple(pools), inputs=dict(found.inputs), note=note)


def _row(each: Recorded, pool: str | None) -> dict[str, Any]:
    status: Mapping[str, Any] = each.summary.get("status", {})
    done: Mapping[str, int] = each.summary.get("actions", {})
    said = [f"{name.replace('_', ' ')} {count}" for name, count in done.items() if count]
    skipped = each.summary.get("skipped")
    return {
        "cycle": each.id,
        "at": each.at,
        "epoch": each.epoch,
        "took_ms": max(0, round((each.finished_at - each.at).total_seconds() * 1000)),
        "queued": status.get("queued_tasks", 0),
        "active": status.get("active_workers", 0),
        "actions": tuple(step_out(each, step) for step in _steps(each, pool)),
        "summary": ", ".join([*said, *([skipped] if skipped else [])]) or "nothing to do",
        "shadow": _shadows(each, pool),
    }


def _steps(each: Recorded, pool: str | None) -> list[Step]:
    return [step for step in each.steps if pool is None or pool in (step.get("pool"), step.get("about"))]


def _shadows(each: Recorded, pool: str | None) -> tuple[wire.ShadowOut, ...]:
    """Where the shadow differed or raised."""
    return tuple(
        wire.ShadowOut.model_validate(one)
        for one in each.summary.get("shadow", ())
        if (one["differs"] or one.get("error")) and pool in (None, one["pool"])
    )


def step_out(each: Recorded, step: Step) -> wire.StepOut:
    about = step.get("worker_id") or step.get("pool") or step.get("about") or step.get("name")
    known = {"cycle": each.id, "at": each.at, "about": None if about is None else str(about)}
    return wire.StepOut.model_validate({**step, **known, "words": words(step)})


def words(step: Step) -> str:
    """One sentence: what was done, why, and why not where it was not done."""
    job: Mapping[str, Any] = step.get("key") or {}
    pattern = _DONE.get(step["action"], "did " + step["action"])
    did = pattern.format_map(defaultdict(lambda: "?", {**step, "job": job.get("job_id", "?")}))
    undone = "" if step["done"] else f"; not done: {step['said']}"
    return f"{did}: {step['reason']}{undone}"


MOST_SUMMED = 20_000
"""Cycles that a report sums up at most: a week of one each half minute."""
LAST = 20
LONGEST = timedelta(minutes=5)
"""A cycle counts until the next one, but no longer than this: there may have been no leader meanwhile."""


def report(services: Services, hours: int) -> wire.ShadowReportOut:
    """What the shadow policies would have done in the last hours, summed up."""

    def read(tx: Tx) -> wire.ShadowReportOut:
        following, read = tx.now(), 0
        since, cycles, differed, failed = None, 0, 0, 0
        pools: defaultdict[tuple[str, str], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        last: list[wire.ShadowThenOut] = []
        for cycle in history_sql.summaries_since(tx, tx.now() - timedelta(hours=hours), MOST_SUMMED):
            read += 1
            seconds = min(LONGEST, max(timedelta(0), following - cycle["started_at"])).total_seconds()
            following = cycle["started_at"]
            noted = cycle["summary"].get("shadow", ())
            if not noted:
                continue
            since, cycles = following, cycles + 1
            differed += any(each["differs"] for each in noted)
            failed += any(each.get("error") for each in noted)
            for each in noted:
                found, raised = pools[each["pool"], each["policy"]], bool(each.get("error"))
                found["cycles"] += 1
                found["failed"] += raised
                if each["differs"]:
                    found["differed"] += 1
                    extra = (each["shadow"]["workers"] - each["live"]["workers"]) * seconds / 3600
                    found["more" if extra > 0 else "less"] += abs(extra)
                if (each["differs"] or raised) and len(last) < LAST:
                    last.append(wire.ShadowThenOut(cycle=cycle["id"], at=following, **each))
        return wire.ShadowReportOut(
            hours=hours,
            since=since,
            cycles=cycles,
            differed=differed,
            failed=failed,
            pools=tuple(
                wire.ShadowPoolOut(
                    pool=pool,
                    policy=policy,
                    cycles=int(found["cycles"]),
                    differed=int(found["differed"]),
                    failed=int(found["failed"]),
                    worker_hours_more=round(found["more"], 4),
                    worker_hours_less=round(found["less"], 4),
                )
                for (pool, policy), found in sorted(pools.items())
            ),
            last=tuple(last),
            truncated=read == MOST_SUMMED,
        )

    return services.database.read(read)
