"""Jobs as they are read: one, many by page, their attempts and their history."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from herdsman.db.connection import Record, Tx, record, records, values
from herdsman.db.paging import beyond, check_limit, cursor
from herdsman.db.schema import (
    SERVICE,
    audit,
    audit_entries,
    checkpoints,
    cycles,
    installation,
    job_attempts,
    job_bodies,
    job_ends,
    job_tags,
    job_view,
    jobs,
    leases,
    logs,
    past_attempts,
    retention,
    workers,
)
from herdsman.db.statements import PreparedStatement, in_state
from herdsman.errors import Conflict, InvalidRequest, NotFound
from herdsman.fleet import history_sql
from herdsman.ids import JobId, check_name
from herdsman.jobs.model import Attempt, AuditEntry, FailureClass, Job, JobFilter, JobPolicy, NewJob
from herdsman.jobs.rules import LONGEST_WAIT, place
from herdsman.states import HELD, JOB, LEASE, WAITING, WORKER, AnyMachine, JobStatus, Reason


@dataclass(frozen=True, slots=True)
class Page:
    jobs: tuple[Job, ...]
    next: str | None
    """Where the next page begins; None on the last one."""


def get_job(tx: Tx, job_id: JobId) -> Job:
    check_name("job_id", job_id, 128)
    row = record(tx, sa.select(job_view).where(job_view.c.job_id == job_id))
    if row is None:
        raise NotFound(f"there is no job {job_id!r}")
    return to_job(row)


def page_jobs(tx: Tx, wanted: JobFilter, *, after: str | None, limit: int) -> Page:
    """Newest first. The cursor names a job, so jobs that come and go do not shift the pages."""
    check_limit(limit)
    if (begin := wanted.begins) is not None:
        # Only that piece of the primary key is read, however many jobs there are. What ends the piece is looked for
        # here, as collations differ.
        check_name("begins", begin, 128)
        query = sa.select(job_view).where(*matching(wanted), job_view.c.job_id >= begin).order_by(job_view.c.job_id)
        rows = records(tx, query.limit(limit))
        return Page(tuple(to_job(row) for row in rows if row["job_id"].startswith(begin)), None)
    query, on = sa.select(job_view).where(*matching(wanted)), job_view
    if wanted.tag is not None:  # then the tag's own index is in the order of the pages
        query = query.join(job_tags, job_tags.c.job_id == job_view.c.job_id).where(job_tags.c.tag == wanted.tag)
        on = job_tags
    if after is not None:
        query = query.where(beyond(on.c.created_at, on.c.job_id, after))
    query = query.order_by(on.c.created_at.desc(), on.c.job_id.desc()).limit(limit + 1)
    found = [to_job(row) for row in records(tx, query)]
    more = len(found) > limit
    last = found[limit - 1] if more else None
    return Page(tuple(found[:limit]), last and cursor(last.created_at, last.job_id))


def count_by_state(tx: Tx) -> Mapping[JobStatus, int]:
    """Few are counted one by one: those that are done are the rest."""
    number = sa.func.count().label("count")
    indexed = in_state(jobs.c.status, *WAITING, JobStatus.CANCELLED, JobStatus.DEAD_LETTER)
    found = dict.fromkeys(JobStatus, 0)
    for which in (indexed, jobs.c.worker_id.is_not(None)):
        query = sa.select(jobs.c.status, number).where(which).group_by(jobs.c.status)
        found |= {JobStatus(row["status"]): int(row["count"]) for row in records(tx, query)}
    (total,) = values(tx, sa.select(sa.func.count()).select_from(jobs))
    return found | {JobStatus.DONE: int(total) - sum(found.values())}


def list_attempts(tx: Tx, job_id: JobId) -> list[Attempt]:
    query = sa.select(job_attempts).where(job_attempts.c.job_id == job_id).order_by(job_attempts.c.claim_token)
    found = [Attempt(**row) for row in records(tx, query.limit(1000))]
    return [
        replace(each, failure_class=FailureClass(each.failure_class)) if each.failure_class else each for each in found
    ]


_AUDIT = sa.select(
    *(audit.c["object_kind" if name == "kind" else name].label(name) for name in AuditEntry.__dataclass_fields__)
)


def job_history(tx: Tx, kind: str, object_id: str) -> list[AuditEntry]:
    query = _AUDIT.where(audit.c.object_kind == kind, audit.c.object_id == object_id)
    return [AuditEntry(**row) for row in records(tx, query.order_by(audit.c.seq).limit(10_000))]


def list_events(tx: Tx, after: int, limit: int, settled: timedelta) -> list[AuditEntry]:
    """Numbers are given out before they are committed, so a gap is waited for until it is old enough."""
    known: list[AuditEntry] = []
    for row in records(tx, _AUDIT.where(audit.c.id > after).order_by(audit.c.id).limit(limit)):
        entry = AuditEntry(**row)
        if entry.id != after + 1 and tx.now() - entry.ts < settled:
            break
        known.append(entry)
        after = entry.id
    return known


def last_event(tx: Tx) -> int:
    return tx.execute(sa.select(sa.func.max(audit_entries.c.id))).scalar_one() or 0


def ahead_of(tx: Tx, job_id: JobId) -> int:
    """How many jobs of its pool would be claimed before a pending job."""
    mine = sa.select(jobs.c.pool, jobs.c.place).where(jobs.c.job_id == job_id).subquery()
    earlier = sa.select(sa.func.count()).where(
        in_state(jobs.c.status, JobStatus.PENDING), jobs.c.pool == mine.c.pool, jobs.c.place < mine.c.place
    )
    return int(tx.execute(earlier).scalar_one())


def matching(wanted: JobFilter) -> Sequence[sa.ColumnElement[bool]]:
    exact = {
        job_view.c.type: wanted.type,
        job_view.c.agent: wanted.agent,
        job_view.c.pool: wanted.pool,
        job_view.c.failure_class: wanted.failure_class,
    }
    for column, value in exact.items():
        if value is not None:
            check_name(column.name, str(value), 255)
    conditions = [column == str(value) for column, value in exact.items() if value is not None]
    if wanted.states:
        conditions.append(in_state(job_view.c.status, *wanted.states))
    if wanted.tag is not None:
        check_name("tag", wanted.tag, 64)
        tagged = sa.select(job_tags.c.job_id).where(job_tags.c.tag == wanted.tag)
        conditions.append(job_view.c.job_id.in_(tagged))
    return conditions


# A field of a job is the column of its name; a span is a column of seconds, and a flag is one of 0 and 1.
_SPANS = tuple(field for field in Job.__dataclass_fields__ if f"{field}_s" in job_view.c)
_FLAGS = tuple(each.name for each in fields(Job) if each.type is bool)
_CONVERTED = {*_SPANS, *_FLAGS, "status", "reason", "tags", "payload", "result", "failure_class"}
_SAME = tuple(field for field in Job.__dataclass_fields__ if field not in _CONVERTED)


def to_job(row: Record) -> Job:
    failure_class, result = row["failure_class"], row["result"]
    spans = {field: row[f"{field}_s"] for field in _SPANS}
    values: dict[str, Any] = {
        **{field: row[field] for field in _SAME},
        **{field: None if span is None else timedelta(seconds=span) for field, span in spans.items()},
        **{field: bool(row[field]) for field in _FLAGS},
    }
    return Job(
        **values,
        status=JobStatus(row["status"]),
        reason=Reason(row["reason"]),
        tags=tuple(json.loads(row["tags"])),
        payload=json.loads(row["payload"]),
        result=None if result is None else json.loads(result),
        failure_class=None if failure_class is None else FailureClass(failure_class),
    )


LARGEST_BATCH = 1000
_NEW: dict[str, Any] = {
    **dict.fromkeys(("attempts", "interruptions", "worker_losses", "out_of_memory"), 0),
    "version": 1,
    "reason": Reason.SUBMITTED.value,
}
_ASKED = {each.name: each.type for each in fields(NewJob)}
_ASKED_SPANS = tuple(field for field in _ASKED if f"{field}_s" in job_view.c)
_MADE = ("job_id", "payload", "tags", "max_attempts", "run_at")
_ASKED_AS_IS = tuple(field for field in _ASKED if field in job_view.c and field not in _MADE)
_GIVEN = (
    *(*_NEW, *_ASKED_AS_IS, *(f"{field}_s" for field in _ASKED_SPANS), *_MADE),
    *("body_hash", "actor", "place", "status", "created_at", "updated_at", "admission"),
)
_FIRST_TOKEN = sa.func.coalesce(sa.select(sa.func.max(installation.c.first_token)).scalar_subquery(), sa.literal(0))
INSERT = PreparedStatement(
    sa.insert(jobs).values(claim_token=_FIRST_TOKEN), columns=tuple(name for name in _GIVEN if name in jobs.c)
)
INSERT_BODY = PreparedStatement(sa.insert(job_bodies))
INSERT_TAG = PreparedStatement(sa.insert(job_tags))


@dataclass(frozen=True, slots=True)
class Draft:
    """A submission that was found in order, with the id it will have."""

    job_id: JobId
    new: NewJob
    payload: str
    body_hash: str
    admission: str | None = None
    """Why it was put off, or sent to another pool."""


def add_jobs(tx: Tx, drafts: Sequence[Draft], policy: JobPolicy) -> None:
    """Insert them all. `Duplicate` when one is there already: look with `find` and add the rest."""
    now, rows = tx.now(), list[dict[str, Any]]()
    for index, draft in enumerate(drafts):
        new = draft.new
        asked = now + new.delay if new.delay else new.run_at
        # An instant in the past would buy a place at the head of the queue.
        due = max(asked, now) if asked else now
        if due > now + LONGEST_WAIT:
            raise InvalidRequest(f"run_at is {due.isoformat()}: it must be within {LONGEST_WAIT.days} days")
        plain = {field: getattr(new, field) for field in _ASKED_AS_IS}
        spans = {field: getattr(new, field) for field in _ASKED_SPANS}
        row = {
            **_NEW,
            **{field: int(value) if _ASKED[field] is bool else value for field, value in plain.items()},
            **{f"{field}_s": span and span.total_seconds() for field, span in spans.items()},
            "job_id": draft.job_id,
            "payload": draft.payload,
            "body_hash": draft.body_hash,
            "actor": f"agent:{new.agent}"[:255],
            # Jobs of one batch keep the order in which they were sent.
            "place": place(due, new.priority, policy.priority_step) + index,
            "tags": json.dumps(new.tags),
            "status": (JobStatus.SCHEDULED if due > now else JobStatus.PENDING).value,
            "max_attempts": new.max_attempts or policy.max_attempts,
            "run_at": due,
            "created_at": now,
            "updated_at": now,
            "admission": draft.admission,
        }
        rows.append(row)
    if rows:
        tx.run_many(INSERT, rows)
        tx.run_many(INSERT_BODY, rows)
    tags = [
        {"tag": tag, "job_id": draft.job_id, "created_at": now}
        for draft in drafts
        for tag in dict.fromkeys(draft.new.tags)
    ]
    if tags:
        tx.run_many(INSERT_TAG, tags)


def find_submitted(tx: Tx, drafts: Sequence[Draft]) -> dict[JobId, JobId]:
    """The jobs that already have the id or the idempotency key of a draft, by the draft's id.

    `Conflict` where one of them has another body.
    """
    columns = sa.select(*(job_bodies.c[each] for each in ("job_id", "body_hash", "agent", "idempotency_key")))
    found = list(tx.execute(columns.where(job_bodies.c.job_id.in_([draft.job_id for draft in drafts]))))
    keys = [(draft.new.agent, draft.new.idempotency_key) for draft in drafts if draft.new.idempotency_key]
    if keys:
        found += tx.execute(columns.where(sa.tuple_(job_bodies.c.agent, job_bodies.c.idempotency_key).in_(keys)))
    by_id = {row.job_id: row for row in found}
    by_key = {(row.agent, row.idempotency_key): row for row in found if row.idempotency_key}
    known: dict[JobId, JobId] = {}
    for draft in drafts:
        key = draft.new.idempotency_key
        same_key = by_key.get((draft.new.agent, key)) if key else None
        row = same_key or by_id.get(draft.job_id)
        if row is None:
            continue
        if row.body_hash != draft.body_hash:
            # The agent is part of the body: the words are the same whoever has the id, and tell nobody of another's jobs.
            named = f"idempotency_key {key!r}" if same_key else f"job_id {draft.job_id!r}"
            raise Conflict(f"{named} was used before for another job body: choose a new one, or send the same body")
        if draft.new.job_id is not None and row.job_id != draft.job_id:
            raise Conflict(f"idempotency_key {key!r} belongs to job {row.job_id!r}, not to {draft.job_id!r}")
        known[draft.job_id] = JobId(row.job_id)
    return known


def cancel_job(tx: Tx, job_id: JobId, who: str) -> JobStatus:
    """A waiting job ends at once; of a held one the worker is told, and its end follows when it is gone."""
    check_name("job_id", job_id, 128)
    query = sa.select(jobs.c.status, jobs.c.cancel_requested_at).where(jobs.c.job_id == job_id).with_for_update()
    row = tx.execute(query).one_or_none()
    if row is None:
        raise NotFound(f"there is no job {job_id!r}")
    state, asked_before = JobStatus(row.status), row.cancel_requested_at is not None
    if state in JOB.terminal or asked_before:
        return state
    now = tx.now()
    values: dict[str, Any] = {"version": jobs.c.version + 1, "updated_at": now, "actor": who}
    if state in HELD:
        values |= {"reason": Reason.CANCEL_REQUESTED.value, "cancel_requested_at": now}
    else:
        ended = JobStatus.CANCELLED
        values |= {"status": ended.value, "reason": Reason.CANCELLED.value, "finished_at": now}
    tx.execute(sa.update(jobs).where(jobs.c.job_id == job_id, jobs.c.status == state.value).values(values))
    return state if state in HELD else JobStatus.CANCELLED


def requeue_job(tx: Tx, job_ids: Sequence[JobId], who: str, policy: JobPolicy, payload: str | None) -> int:
    """Back into the queue with a clean slate. The raised token makes every claim of before stale (J6)."""
    query = sa.select(jobs.c.job_id, job_bodies.c.priority).join(job_bodies, job_bodies.c.job_id == jobs.c.job_id)
    ended = jobs.c.status.in_([str(state) for state in JOB.terminal])
    found = tx.execute(query.where(jobs.c.job_id.in_(job_ids), ended).with_for_update()).all()
    for row in found:
        values = _REOPENED | {
            "updated_at": tx.now(),
            "actor": who,
            "run_at": tx.now(),
            "place": place(tx.now(), row.priority, policy.priority_step),
        }
        if payload is not None:
            values |= {"reason": Reason.REQUEUED_EDITED.value}
            tx.execute(sa.update(job_bodies).where(job_bodies.c.job_id == row.job_id).values(payload=payload))
        tx.execute(sa.update(jobs).where(jobs.c.job_id == row.job_id).values(values))
    return len(found)


_FORGOTTEN = (
    *("finished_at", "cancel_requested_at", "progress", "progress_at", "progress_note", "started_at", "claimed_at"),
    *SERVICE,  # an old run on an external service is not this one
)
_REOPENED: dict[str, Any] = {
    **dict.fromkeys(_FORGOTTEN, sa.null()),
    **dict.fromkeys(("attempts", "interruptions", "worker_losses", "out_of_memory"), 0),
    "status": JobStatus.PENDING.value,
    "reason": Reason.REQUEUED.value,
    "version": jobs.c.version + 1,
    "claim_token": jobs.c.claim_token + 1,
}
BATCH = 500
CYCLES_KEPT = timedelta(days=7)
"""How long it can be asked what the control loop decided, and why."""
DUE = {
    state: PreparedStatement(
        sa.select(jobs.c.job_id)
        .where(in_state(jobs.c.status, state), jobs.c.run_at <= sa.bindparam("b_now"))
        .order_by(jobs.c.run_at)
        .limit(BATCH)
        .with_for_update(skip_locked=True)
    )
    for state in (JobStatus.SCHEDULED, JobStatus.FAILED)
}
STAGE = PreparedStatement(
    lambda listed: (
        sa.update(jobs)
        # The rows are locked as they were found; naming their state again would make the index a worse one.
        .where(jobs.c.job_id.in_(listed))
        .values(
            status=JobStatus.PENDING.value,
            reason=Reason.DUE.value,
            actor="leader",
            version=jobs.c.version + 1,
            updated_at=sa.bindparam("b_now"),
        )
    )
)


def stage_due(tx: Tx, waiting: JobStatus) -> int:
    """Queue the next batch of jobs in the state `waiting` whose time has come."""
    wanted = {"b_now": tx.now()}
    due = [row[0] for row in tx.rows(DUE[waiting], wanted)]
    return tx.run(STAGE, wanted, due) if due else 0


def prune_jobs(tx: Tx, before: datetime) -> Sequence[JobId]:
    """Remove the next batch of jobs that ended before then, with all that is recorded of them; which they were."""
    query = sa.select(jobs.c.job_id).where(jobs.c.finished_at < before).order_by(jobs.c.finished_at)
    found = [JobId(job_id) for job_id in values(tx, query.limit(BATCH).with_for_update(skip_locked=True))]
    if not found:
        return ()
    for table in (job_tags, past_attempts, job_ends, job_bodies, logs, checkpoints, jobs):
        tx.execute(sa.delete(table).where(table.c.job_id.in_(found)))
    tx.execute(sa.delete(audit_entries).where(audit_entries.c.kind == JOB.kind, audit_entries.c.object_id.in_(found)))
    return found


def prune_audit(tx: Tx, before: datetime) -> int:
    """Remove the next batch of audit rows of workers and leases that ended before then, never a part of one's.

    A job's go with the job, and pools have no end.
    """
    entries, newer = audit_entries, audit_entries.alias("newer")
    same = (newer.c.kind == entries.c.kind, newer.c.object_id == entries.c.object_id)
    query = (
        sa.select(entries.c.id)
        .where(entries.c.id < _first_entry(tx, before), entries.c.ts < before)
        .where(sa.or_(_ended_object(WORKER, workers), _ended_object(LEASE, leases)))
        .where(~sa.exists(sa.select(newer.c.id).where(*same, newer.c.ts >= before)))
    )
    found = values(tx, query.order_by(entries.c.id).limit(BATCH))
    if found:
        # Of things that have no end the audit loses only what is older than this; and here that stays on record.
        mine = retention.c.name == "audit"
        kept = tx.execute(sa.select(retention.c.prune_before).where(mine).with_for_update()).scalar_one_or_none()
        if kept is None:
            tx.execute(sa.insert(retention).values(name="audit", prune_before=before))
        elif kept < before:
            tx.execute(sa.update(retention).where(mine).values(prune_before=before))
        tx.execute(sa.delete(entries).where(entries.c.id.in_(found)))
    return len(found)


SLACK = 10_000
"""Entries that may be numbered a little before others that are older."""


def _first_entry(tx: Tx, since: datetime) -> int:
    """About the number of the first audit entry from then on: times are not indexed, but they rise with the numbers."""
    entries = audit_entries.c
    low, high = 0, last_event(tx) + 1
    while low < high:
        middle = (low + high) // 2
        row = record(tx, sa.select(entries.id, entries.ts).where(entries.id >= middle).order_by(entries.id).limit(1))
        if row is None or row["ts"] >= since:
            high = middle
        else:
            low = row["id"] + 1
    return low + SLACK


def prune_cycles(tx: Tx, before: datetime) -> int:
    """Remove the next batch of records of control cycles that began before then, and then of what they saw."""
    query = sa.select(cycles.c.id).where(cycles.c.started_at < before).order_by(cycles.c.started_at)
    found = values(tx, query.limit(BATCH).with_for_update(skip_locked=True))
    if found:
        tx.execute(sa.delete(cycles).where(cycles.c.id.in_(found)))
    return len(found) or history_sql.prune_snapshots(tx, before)


def _ended_object(machine: AnyMachine, table: sa.Table) -> sa.ColumnElement[bool]:
    living = [state.value for state in machine.live]
    alive = sa.select(table.c.version).where(
        table.c[machine.key] == audit_entries.c.object_id, table.c.status.in_(living)
    )
    return sa.and_(audit_entries.c.kind == machine.kind, ~sa.exists(alive))
