"""Jobs as they are read: one, many by page, their attempts and their history."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from sqlalchemy import ColumnElement, func, select

from herdsman.core.errors import NotFound
from herdsman.core.model import Attempt, AuditEntry, Job, JobFilter, JobId
from herdsman.core.reasons import Reason
from herdsman.core.request import check_name
from herdsman.core.retry import FailureClass
from herdsman.core.states import JobState
from herdsman.db.connection import Record, Tx, record, records
from herdsman.db.paging import beyond, check_limit, cursor
from herdsman.db.schema import audit, job_attempts, job_tags, jobs


@dataclass(frozen=True, slots=True)
class Page:
    jobs: tuple[Job, ...]
    next: str | None
    """Where the next page begins; None on the last one."""


def get(tx: Tx, job_id: JobId) -> Job:
    check_name("job_id", job_id, 128)
    row = record(tx, select(jobs).where(jobs.c.job_id == job_id))
    if row is None:
        raise NotFound(f"there is no job {job_id!r}")
    return to_job(row)


def page(tx: Tx, wanted: JobFilter, *, after: str | None, limit: int) -> Page:
    """Newest first. The cursor names a job, so jobs that come and go do not shift the pages."""
    check_limit(limit)
    if wanted.begins is not None:
        return Page(_beginning(tx, wanted, wanted.begins, limit), None)
    query, on = select(jobs).where(*matching(wanted)), jobs
    if wanted.tag is not None:  # then the tag's own index is in the order of the pages
        query = query.join(job_tags, job_tags.c.job_id == jobs.c.job_id).where(job_tags.c.tag == wanted.tag)
        on = job_tags
    if after is not None:
        query = query.where(beyond(on.c.created_at, on.c.job_id, after))
    query = query.order_by(on.c.created_at.desc(), on.c.job_id.desc()).limit(limit + 1)
    found = [to_job(row) for row in records(tx, query)]
    more = len(found) > limit
    last = found[limit - 1] if more else None
    return Page(tuple(found[:limit]), last and cursor(last.created_at, last.job_id))


def _beginning(tx: Tx, wanted: JobFilter, begin: str, limit: int) -> tuple[Job, ...]:
    """The first of those whose ids begin so, in the order of their ids: only that piece of the primary key is read,
    however many jobs there are. What ends the piece is looked for here, as collations differ."""
    check_name("begins", begin, 128)
    others = matching(replace(wanted, begins=None))
    query = select(jobs).where(*others, jobs.c.job_id >= begin).order_by(jobs.c.job_id).limit(limit)
    return tuple(to_job(row) for row in records(tx, query) if row["job_id"].startswith(begin))


def count_by_state(tx: Tx) -> Mapping[JobState, int]:
    query = select(jobs.c.status, func.count().label("count")).group_by(jobs.c.status)
    found = {row["status"]: int(row["count"]) for row in records(tx, query)}
    return {state: found.get(state.value, 0) for state in JobState}


def attempts(tx: Tx, job_id: JobId) -> list[Attempt]:
    query = select(job_attempts).where(job_attempts.c.job_id == job_id).order_by(job_attempts.c.claim_token)
    return [_to_attempt(row) for row in records(tx, query.limit(1000))]


def history(tx: Tx, kind: str, object_id: str) -> list[AuditEntry]:
    query = select(audit).where(audit.c.object_kind == kind, audit.c.object_id == object_id)
    return [_to_entry(row) for row in records(tx, query.order_by(audit.c.seq).limit(10_000))]


def events(tx: Tx, after: int, limit: int, settled: timedelta) -> list[AuditEntry]:
    """Numbers are given out before they are committed, so a gap is waited for until it is old enough."""
    found = records(tx, select(audit).where(audit.c.id > after).order_by(audit.c.id).limit(limit))
    known: list[AuditEntry] = []
    for entry in map(_to_entry, found):
        if entry.id != after + 1 and tx.now() - entry.ts < settled:
            break
        known.append(entry)
        after = entry.id
    return known


def last_event(tx: Tx) -> int:
    return tx.execute(select(func.max(audit.c.id))).scalar_one() or 0


def ahead_of(tx: Tx, job_id: JobId) -> int:
    """How many jobs of its pool would be claimed before a pending job."""
    mine = select(jobs.c.pool, jobs.c.place).where(jobs.c.job_id == job_id).subquery()
    earlier = select(func.count()).where(
        jobs.c.status == JobState.PENDING.value, jobs.c.pool == mine.c.pool, jobs.c.place < mine.c.place
    )
    return int(tx.execute(earlier).scalar_one())


def matching(wanted: JobFilter) -> Sequence[ColumnElement[bool]]:
    exact = {
        jobs.c.type: wanted.type,
        jobs.c.agent: wanted.agent,
        jobs.c.pool: wanted.pool,
        jobs.c.failure_class: wanted.failure_class,
    }
    for column, value in exact.items():
        if value is not None:
            check_name(column.name, str(value), 255)
    conditions = [column == str(value) for column, value in exact.items() if value is not None]
    if wanted.states:
        conditions.append(jobs.c.status.in_([state.value for state in wanted.states]))
    if wanted.tag is not None:
        check_name("tag", wanted.tag, 64)
        tagged = select(job_tags.c.job_id).where(job_tags.c.tag == wanted.tag)
        conditions.append(jobs.c.job_id.in_(tagged))
    if wanted.begins is not None:
        conditions.append(func.substr(jobs.c.job_id, 1, len(wanted.begins)) == wanted.begins)
    return conditions


def to_job(row: Record) -> Job:
    same = {field: row[field] for field in _SAME}
    return Job(
        **same,
        state=JobState(row["status"]),
        reason=Reason(row["reason"]),
        tags=tuple(json.loads(row["tags"])),
        payload=json.loads(row["payload"]),
        result=None if row["result"] is None else json.loads(row["result"]),
        retry_base=seconds(row["retry_base_s"]),
        retry_cap=seconds(row["retry_cap_s"]),
        timeout=seconds(row["timeout_s"]),
        saved_gpu=seconds(row["saved_gpu_s"]),
        allow_cpu=bool(row["allow_cpu"]),
        failure_class=_failure_class(row),
    )


_CONVERTED = {
    "state",
    "reason",
    "tags",
    "payload",
    "result",
    "retry_base",
    "retry_cap",
    "timeout",
    "failure_class",
    "saved_gpu",
    "allow_cpu",
}
_SAME = tuple(field for field in Job.__dataclass_fields__ if field not in _CONVERTED)


def seconds(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)


def _to_attempt(row: Record) -> Attempt:
    values: Record = {**row, "failure_class": _failure_class(row)}
    return Attempt(**values)


def _failure_class(row: Record) -> FailureClass | None:
    return None if row["failure_class"] is None else FailureClass(row["failure_class"])


def _to_entry(row: Record) -> AuditEntry:
    return AuditEntry(
        id=row["id"],
        ts=row["ts"],
        event_type=row["event_type"],
        kind=row["object_kind"],
        object_id=row["object_id"],
        seq=row["seq"],
        from_state=row["from_status"],
        to_state=row["to_status"],
        reason=row["reason"],
        actor=row["actor"],
        details=row["details"],
    )
