"""Recorded control cycles: what each decided, and what a shadow policy would have done instead."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import InvalidRequest, NotFound
from herdsman.explain.why import growth
from herdsman.fleet import history_sql
from herdsman.fleet.history_sql import Recorded, Step
from herdsman.fleet.recording import recorded_next_worker
from herdsman.fleet.wire import (
    CycleRowOut,
    DecisionOut,
    DecisionsOut,
    PoolThenOut,
    ShadowOut,
    ShadowPoolOut,
    ShadowReportOut,
    ShadowThenOut,
    StepOut,
)

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
) -> DecisionsOut:
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
    rows = tuple(CycleRowOut(**_row(each, pool)) for each in found)
    return DecisionsOut(cycles=rows, next=None if following is None else str(following))


def find_decision(services: Services, number: int) -> DecisionOut:
    found = services.database.read(lambda tx: history_sql.find_cycle(tx, number))
    if found is None:
        raise NotFound(f"there is no cycle {number}: records are kept for a week")
    note = found.inputs.get("note", "") if found.inputs else NOT_RECORDED
    pools: list[PoolThenOut] = []
    for name, pool in sorted(found.inputs.get("pools", {}).items()):
        following = recorded_next_worker(pool.get("next"))
        said = () if following is None else growth(following)
        pools.append(PoolThenOut(pool=name, queued=pool["queued"], workers=pool["workers"], would=said))
    return DecisionOut(**_row(found, None), pools=tuple(pools), inputs=dict(found.inputs), note=note)


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


def _shadows(each: Recorded, pool: str | None) -> tuple[ShadowOut, ...]:
    """Where the shadow differed or raised."""
    return tuple(
        ShadowOut.model_validate(one)
        for one in each.summary.get("shadow", ())
        if (one["differs"] or one.get("error")) and pool in (None, one["pool"])
    )


def step_out(each: Recorded, step: Step) -> StepOut:
    about = step.get("worker_id") or step.get("pool") or step.get("about") or step.get("name")
    return StepOut(
        cycle=each.id,
        at=each.at,
        action=step["action"],
        about=None if about is None else str(about),
        pool=step.get("pool"),
        code=step["code"],
        why=step["why"],
        numbers=step["numbers"],
        done=step["done"],
        said=step["said"],
        words=words(step),
    )


def words(step: Step) -> str:
    """One sentence: what was done, why, and why not where it was not done."""
    job: Mapping[str, Any] = step.get("key") or {}
    pattern = _DONE.get(step["action"], "did " + step["action"])
    did = pattern.format_map(_Fields({**step, "job": job.get("job_id", "?")}))
    undone = "" if step["done"] else f"; not done: {step['said']}"
    return f"{did}: {step['why']}{undone}"


class _Fields(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


MOST_READ = 20_000
"""Cycles that a report sums up at most: a week of one each half minute."""
LAST = 20
LONGEST = timedelta(minutes=5)
"""A cycle counts until the next one, but no longer than this: there may have been no leader meanwhile."""


@dataclass
class _Sum:
    """Of one pool under one shadow."""

    cycles: int = 0
    differed: int = 0
    failed: int = 0
    more_s: float = 0.0
    less_s: float = 0.0


def report(services: Services, hours: int) -> ShadowReportOut:
    """What the shadow policies would have done in the last hours, summed up."""

    def read(tx: Tx) -> ShadowReportOut:
        following, read = tx.now(), 0
        since, cycles, differed, failed = None, 0, 0, 0
        pools: dict[tuple[str, str], _Sum] = {}
        last: list[ShadowThenOut] = []
        for told in history_sql.summaries_since(tx, tx.now() - timedelta(hours=hours), MOST_READ):
            read += 1
            seconds = min(LONGEST, max(timedelta(0), following - told.at)).total_seconds()
            following = told.at
            noted = told.summary.get("shadow", ())
            if not noted:
                continue
            since, cycles = told.at, cycles + 1
            differed += any(each["differs"] for each in noted)
            failed += any(each.get("error") for each in noted)
            for each in noted:
                found = pools.setdefault((each["pool"], each["policy"]), _Sum())
                found.cycles += 1
                found.failed += bool(each.get("error"))
                if each["differs"]:
                    found.differed += 1
                    extra = (each["shadow"]["workers"] - each["live"]["workers"]) * seconds
                    found.more_s += max(0.0, extra)
                    found.less_s += max(0.0, -extra)
                if (each["differs"] or each.get("error")) and len(last) < LAST:
                    last.append(ShadowThenOut(cycle=told.id, at=told.at, **each))
        return ShadowReportOut(
            hours=hours,
            since=since,
            cycles=cycles,
            differed=differed,
            failed=failed,
            pools=tuple(
                ShadowPoolOut(
                    pool=pool,
                    policy=policy,
                    cycles=found.cycles,
                    differed=found.differed,
                    failed=found.failed,
                    worker_hours_more=round(found.more_s / 3600, 4),
                    worker_hours_less=round(found.less_s / 3600, 4),
                )
                for (pool, policy), found in sorted(pools.items())
            ),
            last=tuple(last),
            truncated=read == MOST_READ,
        )

    return services.database.read(read)
