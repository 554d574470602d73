"""Giving jobs to workers: the next in line, one for each worker that is free."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, bindparam, exists, null, select, update

from herdsman.core.model import Claim, ClaimKey, JobId, PoolId, WorkerId
from herdsman.core.reasons import Reason
from herdsman.core.states import JobState, WorkerState
from herdsman.store.database import Tx
from herdsman.store.hot import Hot
from herdsman.store.jobs import seconds
from herdsman.store.schema import jobs, workers

FREE_WORKERS = Hot(
    lambda listed: (
        select(workers.c.id, workers.c.pool)
        .where(
            workers.c.id.in_(listed),
            workers.c.status == WorkerState.ACTIVE.value,
            ~exists(select(jobs.c.job_id).where(jobs.c.worker_id == workers.c.id)),
        )
        .order_by(workers.c.id)  # in one order, so that two batches cannot wait for each other
        .with_for_update(key_share=True)
    )
)

ACTIVE_WORKER = Hot(
    select(workers.c.pool)
    .where(workers.c.id == bindparam("b_worker"), workers.c.status == WorkerState.ACTIVE.value)
    .with_for_update(key_share=True)
)

_SevenColumns = Select[Any, Any, Any, Any, Any, Any, Any]

_WAITING = select(
    jobs.c.job_id,
    jobs.c.claim_token,
    jobs.c.type,
    jobs.c.payload,
    jobs.c.attempts,
    jobs.c.timeout_s,
    jobs.c.service_job_id,
).where(jobs.c.status == JobState.PENDING.value, jobs.c.pool == bindparam("b_pool"))


def _next(waiting: _SevenColumns) -> _SevenColumns:
    return waiting.order_by(jobs.c.place).limit(bindparam("b_limit")).with_for_update(skip_locked=True)


NEXT_JOBS = Hot(_next(_WAITING))
NEXT_OF_TYPES = Hot(lambda listed: _next(_WAITING.where(jobs.c.type.in_(listed))))

HELD_JOBS = Hot(
    lambda listed: (
        select(*_WAITING.selected_columns, jobs.c.worker_id, jobs.c.claim_expires_at)
        .where(jobs.c.worker_id.in_(listed), jobs.c.cancel_requested_at.is_(None))
        .order_by(jobs.c.worker_id, jobs.c.slot)
        .with_for_update()
    )
)

CLAIM = Hot(
    update(jobs)
    .where(
        jobs.c.job_id == bindparam("b_job"),
        jobs.c.claim_token == bindparam("b_token"),
        jobs.c.status == JobState.PENDING.value,
    )
    .values(
        version=jobs.c.version + 1,
        updated_at=bindparam("b_now"),
        actor=bindparam("b_actor"),
        status=JobState.CLAIMED.value,
        reason=Reason.CLAIMED.value,
        worker_id=bindparam("b_worker"),
        slot=bindparam("b_slot"),
        last_worker_id=bindparam("b_worker"),
        owner_pool=bindparam("b_pool"),
        claim_token=jobs.c.claim_token + 1,
        # Counted at claim, not at failure, so that a worker that dies in silence still uses one up.
        attempts=jobs.c.attempts + 1,
        claim_expires_at=bindparam("b_expires"),
        claimed_at=bindparam("b_now"),
        deadline_at=bindparam("b_deadline"),
        started_at=null(),
        progress=null(),
        progress_note=null(),
        progress_at=null(),
        failure_class=null(),
        last_error=null(),
    )
)


def free_workers(tx: Tx, asking: Sequence[WorkerId]) -> list[tuple[WorkerId, PoolId]]:
    """Those of `asking` that are active and hold no job; their rows stay locked until the end."""
    return [(WorkerId(worker), PoolId(pool)) for worker, pool in tx.rows(FREE_WORKERS, {}, asking)]


def take(
    tx: Tx, pool: PoolId, takers: Sequence[WorkerId], ttl: timedelta, types: Sequence[str]
) -> list[Claim]:
    """The next jobs of a pool, one for each taker; one locked by another claimer is skipped.

    Without `types` any job will do; with them, jobs of other types go on waiting.
    """
    return _take(tx, pool, [(worker, 0) for worker in takers], ttl, types)


def take_slots(
    tx: Tx, pool: PoolId, worker: WorkerId, slots: Sequence[int], ttl: timedelta, kind: str
) -> list[Claim]:
    """The rest of a batch: more jobs of one type for the same worker, each in a slot of its own."""
    return _take(tx, pool, [(worker, slot) for slot in slots], ttl, [kind])


def pool_of_active(tx: Tx, worker: WorkerId) -> PoolId | None:
    """None when it may not have jobs; its row stays locked until the end."""
    found = tx.rows(ACTIVE_WORKER, {"b_worker": worker})
    return PoolId(found[0][0]) if found else None


def held(tx: Tx, asking: Sequence[WorkerId]) -> list[Claim]:
    """What these workers hold already, as it was given to them."""
    return [
        _claim(
            (job_id, token - 1, kind, payload, attempts - 1, timeout_s, service), WorkerId(worker), expires
        )
        for job_id, token, kind, payload, attempts, timeout_s, service, worker, expires in tx.rows(
            HELD_JOBS, {}, asking
        )
    ]


def _take(
    tx: Tx, pool: PoolId, places: Sequence[tuple[WorkerId, int]], ttl: timedelta, types: Sequence[str]
) -> list[Claim]:
    wanted = {"b_pool": pool, "b_limit": len(places)}
    found = tx.rows(NEXT_OF_TYPES, wanted, types) if types else tx.rows(NEXT_JOBS, wanted)
    if not found:
        return []
    now = tx.now()
    claims = [_claim(row, worker, now + ttl) for row, (worker, _) in zip(found, places, strict=False)]
    rows = [_claim_values(claim, pool, slot, now) for claim, (_, slot) in zip(claims, places, strict=False)]
    changed = tx.run(CLAIM, rows[0]) if len(rows) == 1 else tx.run_many(CLAIM, rows)
    assert changed == len(claims), "a locked pending job could not be claimed"
    return claims


def _claim(row: Sequence[Any], worker: WorkerId, expires_at: datetime) -> Claim:
    job_id, token, kind, payload, attempts, timeout_s, service_job_id = row
    return Claim(
        key=ClaimKey(JobId(job_id), token + 1),
        worker_id=worker,
        type=kind,
        payload=json.loads(payload),
        attempt=attempts + 1,
        timeout=seconds(timeout_s),
        expires_at=expires_at,
        service_job_id=service_job_id,
    )


def _claim_values(claim: Claim, pool: PoolId, slot: int, now: datetime) -> dict[str, Any]:
    return {
        "b_slot": slot,
        "b_job": claim.key.job_id,
        "b_token": claim.key.token - 1,
        "b_now": now,
        "b_actor": f"worker:{claim.worker_id}",
        "b_worker": claim.worker_id,
        "b_pool": pool,
        "b_expires": claim.expires_at,
        "b_deadline": now + claim.timeout if claim.timeout else None,
    }
