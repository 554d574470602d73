"""Why is it so? What stands in the database about a worker, a pool or a job, and what was decided about it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from herdsman.control.hindrances import hindrances
from herdsman.control.services import Services
from herdsman.core.counterfactual import NextWorker, next_worker
from herdsman.core.errors import NotFound
from herdsman.core.fleet import Snapshot
from herdsman.core.model import AuditEntry, Job, JobId, PoolId, WorkerId
from herdsman.core.states import HELD, JOB, POOL, WORKER, JobState, WorkerState
from herdsman.store import cycles, jobs, sight, workers
from herdsman.store.cycles import Decided, Step
from herdsman.store.database import Tx

STEPS = 20
READ = 500
"""Steps that are read so that equal ones can be told as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A decision, and how often it was the same."""

    last: datetime
    since: datetime
    times: int
    action: str
    code: str
    why: str
    numbers: dict[str, Any]
    done: bool
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    kind: str
    id: str
    state: str
    since: datetime | None
    because: tuple[str, ...]
    """Sentences, the most important first."""
    decided: tuple[Told, ...] = ()
    """Newest first."""
    history: tuple[AuditEntry, ...] = ()
    next_worker: NextWorker | None = None
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])


def why_worker(services: Services, worker_id: WorkerId) -> Answer:
    return services.database.read(lambda tx: _worker(tx, worker_id))


def why_pool(services: Services, seen: Snapshot, pool: PoolId) -> Answer:
    """`seen` is a look at the fleet of this moment."""
    if pool not in {each.id for each in seen.pools}:
        raise NotFound(f"the control loop keeps no pool {pool!r}")
    return services.database.read(lambda tx: _pool(tx, seen, pool))


def why_job(services: Services, job_id: JobId) -> Answer:
    return services.database.read(lambda tx: _job(tx, job_id))


def _worker(tx: Tx, worker_id: WorkerId) -> Answer:
    found = workers.get(tx, worker_id)
    because = [f"it is {found.state} because of {found.reason}"]
    if found.error:
        because.insert(0, found.error)
    return Answer(
        kind=WORKER.kind,
        id=worker_id,
        state=found.state,
        since=found.entered_state_at,
        because=tuple(because),
        decided=_told(cycles.latest(tx, lambda step: _names(step, worker_id), READ)),
        history=tuple(jobs.history(tx, WORKER.kind, worker_id)),
        numbers={"last_heartbeat": found.last_heartbeat, "cost_per_hour": found.cost_per_hour},
    )


def _pool(tx: Tx, seen: Snapshot, pool: PoolId) -> Answer:
    states = {state.value: sum(1 for _ in seen.of(pool, state)) for state in WorkerState}
    here = next(each for each in seen.pools if each.id == pool)
    following = next_worker(seen, pool)
    return Answer(
        kind=POOL.kind,
        id=pool,
        state=f"{here.queued} queued, {seen.alive(pool)} of {here.policy.max_workers} workers alive",
        since=here.last_scaled_at,
        because=_growth(following),
        decided=_told(cycles.latest(tx, lambda step: pool in (step.get("pool"), step.get("about")), READ)),
        next_worker=following,
        numbers={"queued": here.queued, **states},
    )


def _growth(following: NextWorker) -> tuple[str, ...]:
    now = f"now {following.queued}"
    if following.at_queued is None:
        said = [f"no queue, however long, would add a worker; {now}"]
    elif following.at_queued <= following.queued:
        said = [f"the next cycle would spawn a worker; {now} queued"]
    else:
        said = [f"would spawn at {following.at_queued} queued; {now}"]
    if following.blocked_by is not None:
        said.insert(0, blocked(following))
    return tuple(said)


def blocked(following: NextWorker) -> str:
    """What stands in the way, with the setting that says so."""
    why = following.blocked_by
    assert why is not None
    setting = _SETTINGS.get(why.code)
    limit = next(
        (why.numbers[name] for name in ("max", "max_rate", "limit_usd") if name in why.numbers), None
    )
    named = setting if limit is None or setting is None else f"{setting}={limit}"
    return f"blocked by {named or why.code}: {why.text}"


_SETTINGS = {
    "CEILING": "MAX_ACTIVE_GPUS",
    "BREAKER_OPEN": "MAX_WORKER_FAILURE_RATE",
    "BUDGET_SPENT": "the budget",
    "ENOUGH": "MIN_SCALING_INTERVAL_SEC",
}


def _job(tx: Tx, job_id: JobId) -> Answer:
    job = jobs.get(tx, job_id)
    numbers, because = _waiting(tx, job) if job.state is JobState.PENDING else ({}, _standing(job))
    return Answer(
        kind=JOB.kind,
        id=job_id,
        state=job.state,
        since=job.run_at if job.state is JobState.PENDING else job.updated_at,
        because=because,
        decided=_told(cycles.latest(tx, lambda step: _carries(step, job_id), READ)),
        history=tuple(jobs.history(tx, JOB.kind, job_id)),
        numbers=numbers,
    )


def _waiting(tx: Tx, job: Job) -> tuple[dict[str, Any], tuple[str, ...]]:
    here = [each for each in sight.see_workers(tx) if each.pool == job.pool]
    active = [each for each in here if each.state is WorkerState.ACTIVE]
    spawning = sum(1 for each in here if each.state is WorkerState.SPAWNING)
    busy = sum(1 for each in active if each.job is not None)
    ahead = jobs.ahead_of(tx, job.job_id)
    said = [f"{ahead} jobs of pool {job.pool} go before it" if ahead else "it is the next one of its pool"]
    if not active:
        coming = f"{spawning} are starting" if spawning else f"see: herdsman why pool {job.pool}"
        said.insert(0, f"pool {job.pool} has no active worker; {coming}")
    elif busy == len(active):
        said.insert(0, f"all {busy} active workers of pool {job.pool} hold a job")
    said = [*hindrances(tx, job), *said]
    return {"ahead": ahead, "active": len(active), "busy": busy, "spawning": spawning}, tuple(said)


def _standing(job: Job) -> tuple[str, ...]:
    if job.state is JobState.SCHEDULED:
        return (f"its time comes at {job.run_at:%Y-%m-%d %H:%M:%S} UTC",)
    if job.state is JobState.FAILED:
        return (f"it is tried again at {job.run_at:%Y-%m-%d %H:%M:%S} UTC", f"it failed: {job.last_error}")
    if job.state in HELD:
        until = "" if job.claim_expires_at is None else f" until {job.claim_expires_at:%H:%M:%S} UTC"
        return (f"worker {job.worker_id} holds it{until}",)
    error = f": {job.last_error}" if job.last_error else ""
    return (f"it has ended as {job.state} because of {job.reason}{error}",)


def _names(step: Step, worker_id: str) -> bool:
    spawned = step["action"] == "SpawnWorker" and str(step.get("said", "")).split(" ")[0] == worker_id
    return spawned or worker_id in (step.get("worker_id"), step.get("about"))


def _carries(step: Step, job_id: str) -> bool:
    key: dict[str, Any] = step.get("key") or {}
    return key.get("job_id") == job_id


def _told(found: Sequence[Decided]) -> tuple[Told, ...]:
    """Equal decisions in a row are one, with its first and its last time."""
    told: list[Told] = []
    for each in found:
        step = each.step
        now = Told(
            last=each.at,
            since=each.at,
            times=1,
            action=step["action"],
            code=step["code"],
            why=step["why"],
            numbers=step["numbers"],
            done=step["done"],
            said=step["said"],
        )
        if told and _same(told[-1], now):
            told[-1] = replace(told[-1], since=each.at, times=told[-1].times + 1)
        else:
            told.append(now)
    return tuple(told[:STEPS])


def _same(one: Told, other: Told) -> bool:
    return (one.action, one.code, one.done) == (other.action, other.code, other.done)
