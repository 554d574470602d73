"""Why is it so? What stands in the database about a worker, a pool or a job, and what was decided about it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from herdsman import __version__
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import NotFound
from herdsman.explain.job import NOT_YET, ended, held, let_in, not_yet, obstacles
from herdsman.explain.rules import Block, Blocker, NextWorker, next_worker
from herdsman.explain.workers import Around, CycleStory, blocked, told_about, told_of
from herdsman.fleet import stats_sql, workers_sql
from herdsman.fleet.history_sql import Step
from herdsman.fleet.observe import observe_without_provider, why_not_active
from herdsman.fleet.snapshot import Snapshot
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs import sql as jobs_sql
from herdsman.jobs.model import AuditEntry, Job
from herdsman.pools import sql as pools_sql
from herdsman.states import HELD, JOB, POOL, WORKER, JobState, WorkerState
from herdsman.text import misfit

__all__ = ["Answer", "CycleStory", "blocked", "why_job", "why_pool", "why_worker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    kind: str
    id: str
    state: str
    since: datetime | None
    because: tuple[str, ...]
    """Sentences, the most important first."""
    decided: tuple[CycleStory, ...] = ()
    """Newest first."""
    history: tuple[AuditEntry, ...] = ()
    next_worker: NextWorker | None = None
    """Of a pool, or of the pool of a job that has no free worker."""
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])
    blocker: Blocker | None = None
    """Of a job that has not begun: what it waits for, as the first sentence says it."""


def why_worker(services: Services, worker_id: WorkerId) -> Answer:
    return services.database.read(lambda tx: _worker(tx, services, worker_id))


def why_pool(services: Services, seen: Snapshot | None, pool: PoolId) -> Answer:
    """`seen` is a look at the fleet of this moment; without it, the provider is not asked."""
    return services.database.read(
        lambda tx: _pool(tx, observe_without_provider(tx, services.fleet()) if seen is None else seen, pool)
    )


def why_job(services: Services, job_id: JobId) -> Answer:
    """From the database alone: who asks needs no way to the provider."""
    return services.database.read(lambda tx: _job(tx, services, job_id))


def _worker(tx: Tx, services: Services, worker_id: WorkerId) -> Answer:
    found = workers_sql.get_worker(tx, worker_id)
    because = [f"it is {found.state} because of {found.reason}"]
    if found.state is WorkerState.SPAWNING:
        because.insert(0, f"it gets no jobs yet: {why_not_active(tx, services.fleet(), worker_id)}")
    if found.error:
        because.insert(0, found.error)
    if found.state in WORKER.live:
        unfit = workers_sql.unfit_of(found.metadata)
        because += [f"it takes no jobs of type {kind}: {why}" for kind, why in unfit.items()]
        if (said := misfit(found.metadata, __version__)) is not None:
            because.append(said)
    return Answer(
        kind=WORKER.kind,
        id=worker_id,
        state=found.state,
        since=found.entered_state_at,
        because=tuple(because),
        decided=told_about(tx, lambda step: _names(step, worker_id)),
        history=tuple(jobs_sql.job_history(tx, WORKER.kind, worker_id)),
        numbers={"last_heartbeat": found.last_heartbeat, "cost_per_hour": found.cost_per_hour},
    )


def _pool(tx: Tx, seen: Snapshot, pool: PoolId) -> Answer:
    here = next((each for each in seen.pools if each.id == pool), None)
    if here is None or (here.life is not None and not here.life.declared):
        return _unkept(tx, seen, pool)
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


def _unkept(tx: Tx, seen: Snapshot, pool: PoolId) -> Answer:
    """Of a pool that only jobs or workers name, or that has ended; `NotFound` where nobody names it."""
    row, queued, alive = pools_sql.find_pool(tx, pool), stats_sql.depths(tx).get(pool, 0), seen.alive(pool)
    if row is None and not queued and not alive:
        raise NotFound(f"the control loop keeps no pool {pool!r}")
    why = "nobody has asked for it" if row is None else f"it is {row.state} ({row.reason})"
    served = f"; {alive} started by hand serve it" if alive else ""
    ends = f"herdsman pool create {pool}, or start a worker by hand: herdsman worker --pool {pool}"
    states = {state.value: sum(1 for _ in seen.of(pool, state)) for state in WorkerState}
    return Answer(
        kind=POOL.kind,
        id=pool,
        state=f"{queued} queued, {alive} workers alive, and the control loop does not keep it",
        since=None if row is None else row.updated_at,
        because=(f"the control loop adds no worker to it: {why}{served}", f"have it kept with: {ends}"),
        decided=told_of(tx, pool),
        numbers={"queued": queued, **states},
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
    job = jobs_sql.get_job(tx, job_id)
    waits = _waiting(Around(tx=tx, services=services, job=job)) if job.state is JobState.PENDING else _Waits()
    if job.state in NOT_YET:
        waits = _Waits(
            tuple(not_yet(job, tx.now(), services.rules())),
            (f"it failed: {job.last_error}",) if job.state is JobState.FAILED else (),
        )
    said = tuple(each.sentence for each in waits.blockers)
    history = tuple(jobs_sql.job_history(tx, JOB.kind, job_id))
    return Answer(
        kind=JOB.kind,
        id=job_id,
        state=job.state,
        since=job.run_at if job.state is JobState.PENDING else job.updated_at,
        because=(*said, *waits.besides) or _standing(tx, job, history),
        decided=told_about(tx, lambda step: _carries(step, job_id)),
        history=history,
        next_worker=waits.following,
        numbers=waits.numbers,
        blocker=waits.blockers[0] if waits.blockers else None,
    )


def _standing(tx: Tx, job: Job, history: Sequence[AuditEntry]) -> tuple[str, ...]:
    """Of a job that waits for nothing."""
    return (held(job),) if job.state in HELD else ended(job, jobs_sql.list_attempts(tx, job.job_id), history)


@dataclass(frozen=True, slots=True)
class _Waits:
    blockers: Sequence[Blocker] = ()
    besides: Sequence[str] = ()
    following: NextWorker | None = None
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])


def _waiting(here: Around) -> _Waits:
    """What is in its way, the first that must go first; then its place in the line."""
    (blockers, following), ahead = obstacles(here), here.ahead
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


def _names(step: Step, worker_id: str) -> bool:
    spawned = step["action"] == "SpawnWorker" and str(step.get("said", "")).split(" ")[0] == worker_id
    return spawned or worker_id in (step.get("worker_id"), step.get("about"))


def _carries(step: Step, job_id: str) -> bool:
    key: dict[str, Any] = step.get("key") or {}
    return key.get("job_id") == job_id
