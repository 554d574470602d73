"""What the control loop decided, cycle by cycle, as people read it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from herdsman.control.explain import blocked
from herdsman.control.inputs import would
from herdsman.control.services import Services
from herdsman.control.shadow_report import shown
from herdsman.core.counterfactual import NextWorker
from herdsman.core.errors import InvalidRequest, NotFound
from herdsman.store import cycles
from herdsman.store.cycles import Recorded, Step
from herdsman.wire.fleet import CycleRowOut, DecisionOut, DecisionsOut, PoolThenOut, StepOut

NOT_RECORDED = "it was recorded by an older version, which did not write down what it saw"

_DONE: Mapping[str, str] = {
    "PromoteWorker": "worker {worker_id} went to work",
    "FailWorker": "gave worker {worker_id} up",
    "ReturnJob": "took job {job} back from worker {worker_id}",
    "DrainWorker": "let worker {worker_id} go",
    "RetireWorker": "let worker {worker_id} go",
    "CallOffWorker": "called worker {worker_id} off",
    "MovePool": "moved pool {pool} to {to}",
    "OfferRevision": "told worker {worker_id} to load what its pool serves now",
    "EndInstance": "asked for the end of the machine of worker {worker_id}",
    "BuryWorker": "worker {worker_id} is gone",
    "SpawnWorker": "asked for a worker in pool {pool}",
    "AttachInstance": "found the machine of worker {worker_id}",
    "EndStray": "ended the machine {name}, which belongs to nobody",
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
        lambda tx: cycles.listed(tx, wanted, before=before, limit=limit)
    )
    rows = tuple(CycleRowOut(**_row(each, pool)) for each in found)
    return DecisionsOut(cycles=rows, next=None if following is None else str(following))


def find_decision(services: Services, number: int) -> DecisionOut:
    found = services.database.read(lambda tx: cycles.find(tx, number))
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
    found = would(noted)
    return () if found is None else growth(found)


def _wanted(pool: str | None, *, acted: bool) -> Callable[[Recorded], bool]:
    def wanted(each: Recorded) -> bool:
        here = _of_pool(each.steps, pool)
        return (pool is None or bool(here)) and (not acted or any(_acts(step) for step in here))

    return wanted


def _differing(pool: str | None) -> Callable[[Recorded], bool]:
    return lambda each: any(pool in (None, one.pool) for one in shown(each.summary))


def _of_pool(steps: Iterable[Step], pool: str | None) -> list[Step]:
    return [step for step in steps if pool is None or _touches(step, pool)]


def _touches(step: Step, pool: str) -> bool:
    return pool in (step.get("pool"), step.get("about"))


def _acts(step: Step) -> bool:
    return bool(step["done"]) and step["action"] != "Note"


def _number(after: str) -> int:
    if not (after.isascii() and after.isdecimal() and len(after) <= 18):
        raise InvalidRequest(f"the cursor {after!r} is not one that we gave out")
    return int(after)
