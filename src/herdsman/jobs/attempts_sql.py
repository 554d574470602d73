"""What attempts wrote, and what they left for the next one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import and_, bindparam, case, delete, func, insert, or_, select, update

from herdsman.db.connection import Tx, record, records, values
from herdsman.db.schema import checkpoints, job_ends, jobs, logs, system_logs
from herdsman.db.statements import PreparedStatement, in_state
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import ClaimKey
from herdsman.jobs.protocol import LogLines, MarkStatus, ServiceMark
from herdsman.jobs.running_sql import OWN_CLAIM, named
from herdsman.states import JobStatus
from herdsman.telemetry.logs import LogRow

MOST_LINES = 10_000
MOST_BYTES = 1_048_576
LONGEST_FIELD = 4096
LINES_AT_ONCE = 500
LINES_KEPT = timedelta(hours=48)
"""How long the database remembers what replicas said."""
_TRUNCATED = f"... the log of this attempt ends here: it has {MOST_LINES:,} lines or {MOST_BYTES:,} bytes"
END_OF_LOG = PreparedStatement(
    select(func.max(logs.c.first_line + logs.c.line_count), func.sum(logs.c.byte_count)).where(
        logs.c.job_id == bindparam("b_job"), logs.c.claim_token == bindparam("b_token")
    )
)
APPEND = PreparedStatement(insert(logs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    claim_token: int
    first: int
    ts: datetime
    lines: tuple[str, ...]


def append_logs(tx: Tx, key: ClaimKey, sent: LogLines) -> None:
    """Lines that are stored already are skipped. The caller holds the claim, so nobody else appends."""
    ((known, stored),) = tx.rows(END_OF_LOG, {"b_job": key.job_id, "b_token": key.token})
    end, room = known or 0, MOST_BYTES - int(stored or 0)
    lines, first = sent.lines[max(0, end - sent.first) :], max(end, sent.first)
    if not lines or end >= MOST_LINES or room <= 0:
        return
    kept, full = list[str](), False
    for line in lines:  # as many as there is room for; the last one says that there were more
        room -= len(line.encode(errors="replace")) + 1
        full = len(kept) == MOST_LINES - end - 1 or room < 0
        if full:
            kept.append(_TRUNCATED)
            break
        kept.append(line.encode(errors="replace").decode().replace("\0", "\ufffd"))
    row = {
        "job_id": key.job_id,
        "claim_token": key.token,
        "first_line": first,
        "ts": tx.now(),
        # A log that is full counts as having all its lines, so that nothing more is added.
        "line_count": max(len(kept), MOST_LINES - first) if full else len(kept),
        "byte_count": sum(len(line.encode()) + 1 for line in kept),
        "lines": json.dumps(kept, ensure_ascii=False),
    }
    tx.run(APPEND, row)


def read_logs(tx: Tx, job_id: JobId, since: tuple[int, int], limit: int) -> list[Piece]:
    """Pieces beyond the line `since` (claim token, line), in the order in which they were written."""
    token, line = since
    later = or_(
        logs.c.claim_token > token, and_(logs.c.claim_token == token, logs.c.first_line + logs.c.line_count > line)
    )
    query = select(logs).where(logs.c.job_id == job_id, later)
    found = records(tx, query.order_by(logs.c.claim_token, logs.c.first_line).limit(limit))
    pieces: list[Piece] = []
    for row in found:
        skip = max(0, line - row["first_line"]) if row["claim_token"] == token else 0
        lines = tuple(json.loads(row["lines"])[skip:])
        piece = Piece(claim_token=row["claim_token"], first=row["first_line"] + skip, ts=row["ts"], lines=lines)
        pieces.append(piece)
    return pieces


def store_lines(tx: Tx, instance: str, rows: Sequence[LogRow]) -> None:
    """What a replica itself said. A field that is too long is cut: a line of a log may quote anything."""
    told = [
        {
            "ts": row.ts,
            "stored_at": tx.now(),
            "instance": instance[:255],
            "level": row.level[:16],
            "event": str(_short(row.event))[:255],
            "details": {name: _short(value) for name, value in row.fields.items()},
        }
        for row in rows
    ]
    tx.execute(insert(system_logs), told)


def _short(value: object) -> object:
    if isinstance(value, bool | int | float | None):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    # No database takes all that a text may hold.
    text = text.replace("\0", "").encode(errors="replace").decode()
    return text if len(text) <= LONGEST_FIELD else f"{text[:LONGEST_FIELD]}..."


def prune_lines(tx: Tx, before: datetime) -> int:
    """Remove the next batch of what replicas said before then."""
    query = select(system_logs.c.id).where(system_logs.c.stored_at < before).order_by(system_logs.c.stored_at)
    found = values(tx, query.limit(LINES_AT_ONCE).with_for_update(skip_locked=True))
    if found:
        tx.execute(delete(system_logs).where(system_logs.c.id.in_(found)))
    return len(found)


def get_checkpoint(tx: Tx, job_id: JobId) -> str | None:
    row = record(tx, select(checkpoints.c.value).where(checkpoints.c.job_id == job_id))
    return None if row is None else row["value"]


def put_checkpoint(tx: Tx, key: ClaimKey, value: str) -> None:
    """The caller holds the claim, so nobody else writes."""
    values = {"claim_token": key.token, "updated_at": tx.now(), "value": value}
    mine = checkpoints.c.job_id == key.job_id
    if tx.execute(update(checkpoints).where(mine).values(values)).rowcount == 0:
        tx.execute(insert(checkpoints).values(job_id=key.job_id, **values))


# No step of the job, so neither its version nor the audit moves.
MARK = PreparedStatement(
    update(jobs)
    .where(*OWN_CLAIM)
    .values(
        service_job_id=bindparam("b_external"),
        service_status=bindparam("b_status"),
        service_submitted_at=func.coalesce(
            bindparam("b_submitted", type_=jobs.c.service_submitted_at.type), jobs.c.service_submitted_at
        ),
        last_service_check=bindparam("b_checked"),
    )
)


def mark_service(tx: Tx, key: ClaimKey, mark: ServiceMark, worker: WorkerId | None = None) -> bool:
    """False when the claim is another's by now, or another worker's."""
    submitted = mark.status is MarkStatus.SUBMITTED
    values = {
        "b_external": mark.external_id,
        "b_status": mark.status.value,
        "b_submitted": tx.now() if submitted else None,
        # What was handed over anew has not been asked about yet.
        "b_checked": None if submitted else tx.now(),
    }
    return tx.run(MARK, {**named(key), **values, "b_worker": worker}) == 1


MOST_SCANNED = 2500
"""Of each state."""
FAILING = (JobStatus.FAILED, JobStatus.DEAD_LETTER)
_HEAD, _TAIL = 200, 600


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    job_id: str
    type: str
    status: JobStatus
    failure_class: str | None
    head: str
    tail: str
    """The beginning and the end of its error."""
    at: datetime


def newest_failed(tx: Tx, since: datetime) -> tuple[list[FailedJob], bool]:
    """The latest first, and whether there may be more. Each state is a piece of one index, and no more is read."""
    found: list[FailedJob] = []
    full = False
    # An error may be as long as a page is short; a negative beginning means something else to each database.
    error, length = job_ends.c.last_error, func.char_length(job_ends.c.last_error)
    tail = case((length > _TAIL, func.substr(error, length - (_TAIL - 1))), else_=error)
    columns = select(
        *(jobs.c.job_id, jobs.c.type, job_ends.c.failure_class),
        func.coalesce(func.substr(error, 1, _HEAD), "").label("head"),
        func.coalesce(tail, "").label("tail"),
        func.coalesce(jobs.c.finished_at, jobs.c.updated_at, type_=jobs.c.updated_at.type).label("at"),
    ).outerjoin(job_ends, and_(job_ends.c.job_id == jobs.c.job_id, job_ends.c.claim_token == jobs.c.claim_token))
    for state in FAILING:
        query = columns.where(in_state(jobs.c.status, state))
        query = query.order_by(jobs.c.created_at.desc(), jobs.c.job_id.desc()).limit(MOST_SCANNED)
        rows = records(tx, query)
        full = full or len(rows) == MOST_SCANNED
        found += [FailedJob(**row, status=state) for row in rows if row["at"] > since]
    return sorted(found, key=lambda each: each.at, reverse=True), full
