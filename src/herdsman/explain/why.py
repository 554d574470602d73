"""Why a job, a worker or a pool is as it is: from the database alone, without asking the provider."""

from collections.abc import Sequence
from typing import Any

from herdsman import __version__
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import NotFound
from herdsman.explain import job as job_words
from herdsman.explain.rules import NextWorker, WaitCode, next_worker
from herdsman.explain.wire import MoveOut, NextWorkerOut, WaitReason, WhyOut
from herdsman.fleet import stats_sql, workers_sql
from herdsman.fleet.history_sql import Step
from herdsman.fleet.observe import observe_without_provider, why_not_active
from herdsman.fleet.snapshot import Snapshot
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs import sql as jobs_sql
from herdsman.pools import sql as pools_sql
from herdsman.states import HELD, JOB, WORKER, JobStatus, WorkerStatus
from herdsman.text import misfit


def why_worker(services: Services, worker_id: WorkerId) -> WhyOut:
    return services.database.read(lambda tx: _worker(tx, services, worker_id))


def why_pool(services: Services, pool: PoolId, snapshot: Snapshot | None = None) -> WhyOut:
    return services.database.read(
        lambda tx: _pool(tx, snapshot or observe_without_provider(tx, services.fleet()), pool)
    )


def why_job(services: Services, job_id: JobId) -> WhyOut:
    return services.database.read(lambda tx: _job(tx, services, job_id))


def _worker(tx: Tx, services: Services, worker_id: WorkerId) -> WhyOut:
    found = workers_sql.get_worker(tx, worker_id)
    because = [f"Worker {worker_id} is {found.status}: {str(found.reason).replace('_', ' ')}"]
    if found.status is WorkerStatus.SPAWNING:
        lack = why_not_active(tx, services.fleet(), worker_id)
        because.insert(0, f"Worker {worker_id} gets no jobs yet: {lack}")
    if found.error:
        because.insert(0, found.error)
    if found.status in WORKER.live:
        unfit = workers_sql.unfit_of(found.metadata)
        because += [f"It takes no jobs of type {kind}: {reason}" for kind, reason in unfit.items()]
        if (said := misfit(found.metadata, __version__)) is not None:
            because.append(said)

    def about(step: Step) -> bool:
        spawned = step["action"] == "SpawnWorker" and str(step.get("said", "")).split(" ")[0] == worker_id
        return spawned or worker_id in (step.get("worker_id"), step.get("about"))

    return WhyOut(
        kind="worker",
        id=worker_id,
        status=found.status,
        since=found.entered_state_at,
        because=tuple(because),
        decided=job_words.decisions_about(tx, about),
        history=_history(tx, WORKER.kind, worker_id),
        numbers={"last_heartbeat": found.last_heartbeat, "cost_per_hour": found.cost_per_hour},
    )


def _pool(tx: Tx, snapshot: Snapshot, pool: PoolId) -> WhyOut:
    here = next((each for each in snapshot.pools if each.id == pool), None)
    alive, decided = snapshot.alive(pool), job_words.decisions_of_pool(tx, pool)
    statuses = {status.value: sum(1 for _ in snapshot.of(pool, status)) for status in WorkerStatus}
    if here is not None and (here.life is None or here.life.declared):
        following, queued, since = next_worker(snapshot, pool), here.queued, here.last_scaled_at
        status, because = f"{alive} of {here.policy.max_workers} workers alive", growth(following)
    else:  # a pool that only jobs or workers name, or that has ended
        row, queued, following = pools_sql.find_pool(tx, pool), stats_sql.depths(tx).get(pool, 0), None
        if row is None and not queued and not alive:
            raise NotFound(f"there is no pool {pool!r}")
        reason = "it was never created" if row is None else f"it is {row.status} ({row.reason})"
        workers = "1 worker that was" if alive == 1 else f"{alive} workers that were"
        served = f"; it has {workers} started manually" if alive else ""
        status = f"{alive} workers alive, not managed by the control loop"
        since = None if row is None else row.updated_at
        because = (
            f"The control loop adds no worker to pool {pool}: {reason}{served}",
            f"Create the pool: herdsman pool create {pool}, or start a worker: herdsman worker --pool {pool}",
        )
    return WhyOut(
        kind="pool",
        id=pool,
        status=f"{queued} queued, {status}",
        since=since,
        because=because,
        decided=decided,
        next_worker=_next_out(following),
        numbers={"queued": queued, **statuses},
    )


def growth(following: NextWorker) -> tuple[str, ...]:
    """What a longer queue would change, after what prevents it."""
    if following.at_queued is None:
        said = f"No queue, however long, adds a worker; {following.queued} queued"
    elif following.at_queued <= following.queued:
        said = f"The next cycle adds a worker; {following.queued} queued"
    else:
        said = f"The next worker is added at {following.at_queued} queued; {following.queued} queued"
    return (said,) if following.blocked_by is None else (job_words.blocked(following), said)


def _next_out(following: NextWorker | None) -> NextWorkerOut | None:
    if following is None:
        return None
    said = None if following.blocked_by is None else job_words.blocked(following)
    return NextWorkerOut(queued=following.queued, at_queued=following.at_queued, blocked_by=said)


def _job(tx: Tx, services: Services, job_id: JobId) -> WhyOut:
    job = jobs_sql.get_job(tx, job_id)
    reasons: Sequence[WaitReason] = ()
    besides: list[str] = []
    following, numbers = None, dict[str, Any]()
    if job.status is JobStatus.PENDING:
        waiting = job_words.WaitingJob(tx=tx, services=services, job=job)
        reasons, following = job_words.queued_reasons(waiting)
        line = f"the job is next in pool {job.pool}"
        if waiting.ahead:
            jobs = "1 job is" if waiting.ahead == 1 else f"{waiting.ahead} jobs are"
            line = f"{jobs} ahead in pool {job.pool}"
        if reasons:
            besides.append(line[0].upper() + line[1:])
        else:
            count = len(waiting.asking)
            free = "a worker is free" if count == 1 else f"{count} workers are free"
            reasons = [WaitReason(code=WaitCode.NEXT, text=line, ends=f"{free}, and the job starts in its turn")]
        if job.admission is not None:
            besides.append(
                f"Limit {job.admission} applied when the job was submitted: it was deferred, or sent to pool {job.pool}"
            )
        numbers = {
            "ahead": waiting.ahead,
            "active": len(waiting.active),
            "busy": sum(1 for each in waiting.active if each.job is not None),
            "spawning": len(waiting.starting),
        }
    elif job.status in job_words.NOT_DUE:
        reasons = job_words.not_due(job, tx.now(), services.rules())
        if job.status is JobStatus.FAILED:
            besides.append(f"The last attempt failed: {job.last_error}")
    elif job.status in HELD:
        until = "" if job.claim_expires_at is None else f" until {job.claim_expires_at:%H:%M:%S} UTC"
        besides.append(f"Claimed by worker {job.worker_id}{until}")
    else:
        besides += job_words.outcome_of(
            job, jobs_sql.list_attempts(tx, job_id), jobs_sql.job_history(tx, JOB.kind, job_id)
        )

    def about(step: Step) -> bool:
        key: dict[str, Any] = step.get("key") or {}
        return key.get("job_id") == job_id

    return WhyOut(
        kind="job",
        id=job_id,
        status=job.status,
        since=job.run_at if job.status is JobStatus.PENDING else job.updated_at,
        because=(*(each.sentence for each in reasons), *besides),
        decided=job_words.decisions_about(tx, about),
        history=_history(tx, JOB.kind, job_id),
        next_worker=_next_out(following),
        numbers=numbers,
        blocker=reasons[0] if reasons else None,
    )


def _history(tx: Tx, kind: str, named: str) -> tuple[MoveOut, ...]:
    return tuple(MoveOut.of(each) for each in jobs_sql.job_history(tx, kind, named))
