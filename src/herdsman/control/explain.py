"""Why is it so? What stands in the database about a worker, a pool or a job, and what was decided about it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from herdsman.control.around import Around
from herdsman.control.growth import blocked, no_worker
from herdsman.control.hindrances import hindrances
from herdsman.control.recorded import Told, told_about, told_of
from herdsman.control.services import Services
from herdsman.control.snapshot import look_without_provider
from herdsman.control.standing import let_in, not_yet, standing
from herdsman.core.blockers import Block, Blocker
from herdsman.core.counterfactual import NextWorker, next_worker
from herdsman.core.errors import NotFound
from herdsman.core.fleet import Snapshot
from herdsman.core.model import AuditEntry, Job, JobId, PoolId, WorkerId
from herdsman.core.states import JOB, POOL, WORKER, JobState, WorkerState
from herdsman.store import jobs, workers
from herdsman.store.cycles import Step
from herdsman.store.database import Tx

__all__ = ["Answer", "Told", "blocked", "why_job", "why_pool", "why_worker"]

NOT_YET = (JobState.SCHEDULED, JobState.FAILED)
FINAL = (Block.PAUSED, Block.DRAINED, Block.POOL_CLOSED, Block.UNKNOWN_TYPE)
"""While one of these stands, more workers would not help."""


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
    """Of a pool, or of the pool of a job that has no free worker."""
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])
    blocker: Blocker | None = None
    """Of a job that has not begun: what it waits for, as the first sentence says it."""


def why_worker(services: Services, worker_id: WorkerId) -> Answer:
    return services.database.read(lambda tx: _worker(tx, worker_id))


def why_pool(services: Services, seen: Snapshot | None, pool: PoolId) -> Answer:
    """`seen` is a look at the fleet of this moment; without it, the provider is not asked."""
    return services.database.read(
        lambda tx: _pool(tx, look_without_provider(tx, services.fleet()) if seen is None else seen, pool)
    )


def why_job(services: Services, job_id: JobId) -> Answer:
    """From the database alone: who asks needs no way to the provider."""
    return services.database.read(lambda tx: _job(tx, services, job_id))


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
        decided=told_about(tx, lambda step: _names(step, worker_id)),
        history=tuple(jobs.history(tx, WORKER.kind, worker_id)),
        numbers={"last_heartbeat": found.last_heartbeat, "cost_per_hour": found.cost_per_hour},
    )


def _pool(tx: Tx, seen: Snapshot, pool: PoolId) -> Answer:
    here = next((each for each in seen.pools if each.id == pool), None)
    if here is None:
        raise NotFound(f"the control loop keeps no pool {pool!r}")
    states = {state.value: sum(1 for _ in seen.of(pool, state)) for state in WorkerState}
    following = next_worker(seen, pool)
    return Answer(
        kind=POOL.kind,
        id=pool,
        state=f"{here.queued} queued, {seen.alive(pool)} of {here.policy.max_workers} workers alive",
        since=here.last_scaled_at,
        because=_growth(following),
        decided=told_of(tx, pool),
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


def _job(tx: Tx, services: Services, job_id: JobId) -> Answer:
    job = jobs.get(tx, job_id)
    waits = _waiting(Around(tx=tx, services=services, job=job)) if job.state is JobState.PENDING else _Waits()
    if job.state in NOT_YET:
        waits = _Waits(tuple(not_yet(job, tx.now(), services.rules())), _failure(job))
    said = tuple(each.sentence for each in waits.blockers)
    return Answer(
        kind=JOB.kind,
        id=job_id,
        state=job.state,
        since=job.run_at if job.state is JobState.PENDING else job.updated_at,
        because=(*said, *waits.besides) or standing(job),
        decided=told_about(tx, lambda step: _carries(step, job_id)),
        history=tuple(jobs.history(tx, JOB.kind, job_id)),
        next_worker=waits.following,
        numbers=waits.numbers,
        blocker=waits.blockers[0] if waits.blockers else None,
    )


@dataclass(frozen=True, slots=True)
class _Waits:
    blockers: Sequence[Blocker] = ()
    besides: Sequence[str] = ()
    following: NextWorker | None = None
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])


def _waiting(here: Around) -> _Waits:
    """What is in its way, the first that must go first; then its place in the line."""
    blockers, following, ahead = [*hindrances(here)], None, here.ahead
    if not here.free and not any(each.code in FINAL for each in blockers):
        unfree, following = no_worker(here)
        blockers.append(unfree)
    line = _place(here.job.pool, ahead)
    besides = [line]
    if not blockers:
        count = len(here.asking)
        free = "a worker is free and asks" if count == 1 else f"{count} workers are free and ask"
        ends = f"{free} for work: it starts in its turn"
        blockers, besides = [Blocker(code=Block.NEXT, text=line, ends=ends)], []
    busy = sum(1 for each in here.active if each.job is not None)
    numbers = {"ahead": ahead, "active": len(here.active), "busy": busy, "spawning": len(here.starting)}
    return _Waits(blockers, (*besides, *filter(None, [let_in(here.job)])), following, numbers)


def _place(pool: str, ahead: int) -> str:
    if ahead == 0:
        return "it is the next one of its pool"
    return (
        f"1 job of pool {pool} goes before it" if ahead == 1 else f"{ahead} jobs of pool {pool} go before it"
    )


def _failure(job: Job) -> Sequence[str]:
    return (f"it failed: {job.last_error}",) if job.state is JobState.FAILED else ()


def _names(step: Step, worker_id: str) -> bool:
    spawned = step["action"] == "SpawnWorker" and str(step.get("said", "")).split(" ")[0] == worker_id
    return spawned or worker_id in (step.get("worker_id"), step.get("about"))


def _carries(step: Step, job_id: str) -> bool:
    key: dict[str, Any] = step.get("key") or {}
    return key.get("job_id") == job_id
