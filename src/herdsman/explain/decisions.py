"""What a shadow policy would have done, read from recorded cycles, and summed up over many."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, cast

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import InvalidRequest, NotFound
from herdsman.explain.rules import NextWorker
from herdsman.explain.why import Answer, why_job, why_pool, why_worker
from herdsman.explain.wire import BlockerOut, MoveOut, NextWorkerOut, RepeatedDecisionOut, WhyOut
from herdsman.explain.workers import CycleStory, blocked
from herdsman.fleet import history_sql
from herdsman.fleet.history_sql import CycleSteps, Recorded, Step
from herdsman.fleet.observe import observe_without_provider
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
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs.model import AuditEntry

MOST_READ = 20_000
"""Cycles that are summed up at most: a week of one each half minute."""
LAST = 20
LONGEST = timedelta(minutes=5)
"""What a cycle saw is taken to hold until the next one, but no longer than this: nobody may have led meanwhile."""
Document = Mapping[str, Any]


def shown(summary: Mapping[str, Any]) -> tuple[ShadowOut, ...]:
    """Of a recorded cycle, what differed or could not be told."""
    return tuple(ShadowOut.model_validate(each) for each in _noted(summary) if _speaks(each))


def report(services: Services, hours: int) -> ShadowReportOut:
    return services.database.read(lambda tx: _report(tx, hours))


def _noted(summary: Mapping[str, Any]) -> Sequence[Document]:
    return summary.get("shadow", ())


def _speaks(noted: Document) -> bool:
    return bool(noted["differs"] or noted.get("error"))


@dataclass
class _Sum:
    """Of one pool under one shadow."""

    cycles: int = 0
    differed: int = 0
    failed: int = 0
    more_s: float = 0.0
    less_s: float = 0.0

    def add(self, noted: Document, held: timedelta) -> None:
        self.cycles += 1
        self.failed += bool(noted.get("error"))
        if noted["differs"]:
            self.differed += 1
            extra = (noted["shadow"]["workers"] - noted["live"]["workers"]) * held.total_seconds()
            self.more_s += max(0.0, extra)
            self.less_s += max(0.0, -extra)


@dataclass
class _Sums:
    cycles: int = 0
    differed: int = 0
    failed: int = 0
    since: datetime | None = None
    pools: dict[tuple[str, str], _Sum] = field(default_factory=dict[tuple[str, str], _Sum])
    last: list[ShadowThenOut] = field(default_factory=list[ShadowThenOut])

    def add(self, told: CycleSteps, held: timedelta) -> None:
        noted = _noted(told.summary)
        if not noted:
            return
        self.cycles, self.since = self.cycles + 1, told.at
        self.differed += any(each["differs"] for each in noted)
        self.failed += any(each.get("error") for each in noted)
        for each in noted:
            self.pools.setdefault((each["pool"], each["policy"]), _Sum()).add(each, held)
        room = LAST - len(self.last)
        self.last += [ShadowThenOut(cycle=told.id, at=told.at, **each) for each in noted if _speaks(each)][
            :room
        ]


def _report(tx: Tx, hours: int) -> ShadowReportOut:
    sums, read = _Sums(), 0
    for told, held in _held(
        history_sql.summaries_since(tx, tx.now() - timedelta(hours=hours), MOST_READ), tx.now()
    ):
        read += 1
        sums.add(told, held)
    return ShadowReportOut(
        hours=hours,
        since=sums.since,
        cycles=sums.cycles,
        differed=sums.differed,
        failed=sums.failed,
        pools=tuple(_pool_out(*named, each) for named, each in sorted(sums.pools.items())),
        last=tuple(sums.last),
        truncated=read == MOST_READ,
    )


def _held(told: Iterable[CycleSteps], now: datetime) -> Iterator[tuple[CycleSteps, timedelta]]:
    """Each with how long it held, from the newest on."""
    following = now
    for each in told:
        yield each, min(LONGEST, max(timedelta(0), following - each.at))
        following = each.at


def _pool_out(pool: str, policy: str, found: _Sum) -> ShadowPoolOut:
    return ShadowPoolOut(
        pool=pool,
        policy=policy,
        cycles=found.cycles,
        differed=found.differed,
        failed=found.failed,
        worker_hours_more=round(found.more_s / 3600, 4),
        worker_hours_less=round(found.less_s / 3600, 4),
    )


NOT_RECORDED = "it was recorded by an older version, which did not write down what it saw"
_DONE: Mapping[str, str] = {
    "PromoteWorker": "worker {worker_id} went to work",
    "FailWorker": "gave worker {worker_id} up",
    "RequeueJob": "took job {job} back from worker {worker_id}",
    "DrainIdleWorker": "let worker {worker_id} go",
    "DrainWorker": "let worker {worker_id} go",
    "CancelSpawn": "called worker {worker_id} off",
    "MovePool": "moved pool {pool} to {to}",
    "AssignModelRevision": "told worker {worker_id} to load what its pool serves now",
    "EndInstance": "asked for the end of the machine of worker {worker_id}",
    "ConfirmTerminated": "worker {worker_id} is gone",
    "SpawnWorker": "asked for a worker in pool {pool}",
    "AttachInstance": "found the machine of worker {worker_id}",
    "TerminateOrphan": "ended the machine {name}, which belongs to nobody",
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
    """Newest first. `acted` leaves out the cycles that did nothing, `pool` those that did not touch it.

    `shadow` leaves those in which a second policy would have done something else, or raised.
    """
    before = None if after is None else _number(after)
    wanted = _differing(pool) if shadow else _wanted(pool, acted=acted)
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
    return DecisionOut(**_row(found, None), pools=_pools(found), inputs=dict(found.inputs), note=note)


def steps_of(each: Recorded) -> list[StepOut]:
    return [step_out(each, step) for step in each.steps]


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
    """One sentence: what was done, why, and what came of it if nothing did."""
    job: Mapping[str, Any] = step.get("key") or {}
    pattern = _DONE.get(step["action"], "did " + step["action"])
    did = pattern.format_map(_Said({**step, "job": job.get("job_id", "?")}))
    undone = "" if step["done"] else f"; not done: {step['said']}"
    return f"{did}: {step['why']}{undone}"


class _Said(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def growth(following: NextWorker) -> tuple[str, ...]:
    """What a longer queue would change, and what stands in the way."""
    if following.at_queued is None:
        said = f"no queue, however long, would add a worker; {following.queued} queued"
    elif following.at_queued <= following.queued:
        said = f"would spawn a worker with {following.queued} queued"
    else:
        said = f"would spawn at {following.at_queued} queued; {following.queued} were"
    return (said,) if following.blocked_by is None else (said, blocked(following))


def _row(each: Recorded, pool: str | None) -> dict[str, Any]:
    status: Mapping[str, Any] = each.summary.get("status", {})
    steps = [step for step in each.steps if pool is None or _touches(step, pool)]
    return {
        "cycle": each.id,
        "at": each.at,
        "epoch": each.epoch,
        "took_ms": max(0, round((each.finished_at - each.at).total_seconds() * 1000)),
        "queued": status.get("queued_tasks", 0),
        "active": status.get("active_workers", 0),
        "actions": tuple(step_out(each, step) for step in steps),
        "summary": _summary(each),
        "shadow": tuple(one for one in shown(each.summary) if pool in (None, one.pool)),
    }


def _summary(each: Recorded) -> str:
    done: Mapping[str, int] = each.summary.get("actions", {})
    told = [f"{name.replace('_', ' ')} {count}" for name, count in done.items() if count]
    skipped = each.summary.get("skipped")
    return ", ".join([*told, *([skipped] if skipped else [])]) or "nothing to do"


def _pools(each: Recorded) -> tuple[PoolThenOut, ...]:
    seen: Mapping[str, Mapping[str, Any]] = each.inputs.get("pools", {})
    return tuple(
        PoolThenOut(pool=name, queued=pool["queued"], workers=pool["workers"], would=_would(pool.get("next")))
        for name, pool in sorted(seen.items())
    )


def _would(noted: Mapping[str, Any] | None) -> tuple[str, ...]:
    found = recorded_next_worker(noted)
    return () if found is None else growth(found)


def _wanted(pool: str | None, *, acted: bool) -> Callable[[Recorded], bool]:
    def wanted(each: Recorded) -> bool:
        here = _of_pool(each.steps, pool)
        return (pool is None or bool(here)) and (
            not acted or any((bool(step["done"]) and step["action"] != "Note") for step in here)
        )

    return wanted


def _differing(pool: str | None) -> Callable[[Recorded], bool]:
    return lambda each: any(pool in (None, one.pool) for one in shown(each.summary))


def _of_pool(steps: Iterable[Step], pool: str | None) -> list[Step]:
    return [step for step in steps if pool is None or _touches(step, pool)]


def _touches(step: Step, pool: str) -> bool:
    return pool in (step.get("pool"), step.get("about"))


def _number(after: str) -> int:
    if not (after.isascii() and after.isdecimal() and len(after) <= 18):
        raise InvalidRequest(f"the cursor {after!r} is not one that we gave out")
    return int(after)


Kind = Literal["job", "worker", "pool"]


def why(services: Services, kind: Kind, named: str) -> WhyOut:
    """Nobody outside is asked, so it may be asked for often."""
    match kind:
        case "job":
            return why_out(why_job(services, JobId(named)))
        case "worker":
            return why_out(why_worker(services, WorkerId(named)))
        case "pool":
            seen = services.database.read(lambda tx: observe_without_provider(tx, services.fleet()))
            return why_out(why_pool(services, seen, PoolId(named)))


def why_out(answer: Answer) -> WhyOut:
    return WhyOut(
        kind=cast("Kind", answer.kind),
        id=answer.id,
        state=answer.state,
        since=answer.since,
        because=answer.because,
        decided=tuple(_told(each) for each in answer.decided),
        history=tuple(_move(each) for each in answer.history),
        next_worker=None if answer.next_worker is None else _next(answer.next_worker),
        numbers=answer.numbers,
        blocker=None if answer.blocker is None else BlockerOut.of(answer.blocker),
    )


def _told(told: CycleStory) -> RepeatedDecisionOut:
    given: dict[str, Any] = {name: getattr(told, name) for name in RepeatedDecisionOut.model_fields}
    return RepeatedDecisionOut(**given)


def _move(step: AuditEntry) -> MoveOut:
    return MoveOut(
        ts=step.ts,
        from_status=step.from_state,
        to_status=step.to_state,
        reason=step.reason,
        actor=step.actor,
    )


def _next(following: NextWorker) -> NextWorkerOut:
    said = growth(following)
    return NextWorkerOut(
        queued=following.queued,
        at_queued=following.at_queued,
        blocked_by=said[1] if following.blocked_by is not None else None,
    )
