"""How jobs come in: once each, however often they are sent."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, tuple_

from herdsman.core.errors import Conflict, InvalidRequest
from herdsman.core.model import JobId, JobPolicy, NewJob
from herdsman.core.order import place
from herdsman.core.reasons import Reason
from herdsman.core.request import LONGEST_WAIT
from herdsman.core.states import JobState
from herdsman.db.connection import Tx
from herdsman.db.schema import job_tags, jobs
from herdsman.db.statements import Hot

LARGEST_BATCH = 1000

_NEW: dict[str, Any] = {
    **dict.fromkeys(("attempts", "interruptions", "worker_losses", "out_of_memory", "claim_token"), 0),
    "version": 1,
    "reason": Reason.SUBMITTED.value,
}
_GIVEN = (
    *(
        "job_id",
        "type",
        "payload",
        "body_hash",
        "idempotency_key",
        "agent",
        "actor",
        "pool",
        "priority",
        "place",
    ),
    *("tags", "status", "max_attempts", "retry_base_s", "retry_cap_s", "timeout_s", "run_at", "created_at"),
    *("updated_at", "model", "gpu_memory_mb", "allow_cpu", "concurrency_key", "admission"),
)
INSERT = Hot(insert(jobs), columns=(*_NEW, *_GIVEN))
INSERT_TAG = Hot(insert(job_tags))


@dataclass(frozen=True, slots=True)
class Draft:
    """A submission that was found in order, with the id it will have."""

    job_id: JobId
    new: NewJob
    payload: str
    body_hash: str
    admission: str | None = None
    """Why it was put off, or sent to another pool."""


@dataclass(frozen=True, slots=True)
class Known:
    job_id: JobId
    body_hash: str


def add(tx: Tx, drafts: Sequence[Draft], policy: JobPolicy) -> None:
    """Insert them all. `Duplicate` when one is there already: look with `find` and add the rest."""
    now = tx.now()
    rows = [_row(draft, index, now, policy) for index, draft in enumerate(drafts)]
    if len(rows) == 1:
        tx.run(INSERT, rows[0])
    elif rows:
        tx.run_many(INSERT, rows)
    tags = [
        {"tag": tag, "job_id": draft.job_id, "created_at": now}
        for draft in drafts
        for tag in dict.fromkeys(draft.new.tags)
    ]
    if tags:
        tx.run_many(INSERT_TAG, tags)


def find(tx: Tx, drafts: Sequence[Draft]) -> list[Known | None]:
    """For each draft the job that already has its id or its idempotency key."""
    columns = select(jobs.c.job_id, jobs.c.body_hash, jobs.c.agent, jobs.c.idempotency_key)
    found = list(tx.execute(columns.where(jobs.c.job_id.in_([draft.job_id for draft in drafts]))))
    keys = [(draft.new.agent, draft.new.idempotency_key) for draft in drafts if draft.new.idempotency_key]
    if keys:
        found += tx.execute(columns.where(tuple_(jobs.c.agent, jobs.c.idempotency_key).in_(keys)))
    by_id = {row.job_id: row for row in found}
    by_key = {(row.agent, row.idempotency_key): row for row in found if row.idempotency_key}
    return [_match(draft, by_id, by_key) for draft in drafts]


def _match(draft: Draft, by_id: Mapping[str, Any], by_key: Mapping[tuple[str, str], Any]) -> Known | None:
    key = draft.new.idempotency_key
    same_key = by_key.get((draft.new.agent, key)) if key else None
    row = same_key or by_id.get(draft.job_id)
    if row is None:
        return None
    if row.body_hash != draft.body_hash:
        # The agent is part of the body: the words are the same whoever has the id, and tell nobody of another's jobs.
        named = f"idempotency_key {key!r}" if same_key else f"job_id {draft.job_id!r}"
        raise Conflict(
            f"{named} was used before for another job body: choose a new one, or send the same body"
        )
    if draft.new.job_id is not None and row.job_id != draft.job_id:
        raise Conflict(f"idempotency_key {key!r} belongs to job {row.job_id!r}, not to {draft.job_id!r}")
    return Known(JobId(row.job_id), row.body_hash)


def _row(draft: Draft, index: int, now: datetime, policy: JobPolicy) -> dict[str, Any]:
    new = draft.new
    asked = now + new.delay if new.delay else new.run_at
    # An instant in the past would buy a place at the head of the queue.
    due = max(asked, now) if asked else now
    if due > now + LONGEST_WAIT:
        raise InvalidRequest(f"run_at is {due.isoformat()}: it must be within {LONGEST_WAIT.days} days")
    return _NEW | {
        "job_id": draft.job_id,
        "type": new.type,
        "payload": draft.payload,
        "body_hash": draft.body_hash,
        "idempotency_key": new.idempotency_key,
        "agent": new.agent,
        "actor": f"agent:{new.agent}"[:255],
        "pool": new.pool,
        "priority": new.priority,
        # Jobs of one batch keep the order in which they were sent.
        "place": place(due, new.priority, policy.priority_step) + index,
        "tags": json.dumps(new.tags),
        "status": (JobState.SCHEDULED if due > now else JobState.PENDING).value,
        "max_attempts": new.max_attempts or policy.max_attempts,
        "retry_base_s": new.retry_base and new.retry_base.total_seconds(),
        "retry_cap_s": new.retry_cap and new.retry_cap.total_seconds(),
        "timeout_s": new.timeout and new.timeout.total_seconds(),
        "run_at": due,
        "created_at": now,
        "updated_at": now,
        "model": new.model,
        "gpu_memory_mb": new.gpu_memory_mb,
        "allow_cpu": int(new.allow_cpu),
        "concurrency_key": new.concurrency_key,
        "admission": draft.admission,
    }
