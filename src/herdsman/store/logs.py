"""What attempts wrote, and what they left for the next one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import and_, bindparam, delete, func, insert, or_, select, update

from herdsman.core.model import ClaimKey, JobId
from herdsman.core.work import LogLines
from herdsman.db.connection import Tx, record, records, values
from herdsman.db.schema import checkpoints, logs, system_logs
from herdsman.db.statements import Hot
from herdsman.telemetry.logs import LogRow

MOST_LINES = 10_000
MOST_BYTES = 1_048_576
LONGEST_FIELD = 4096
LINES_AT_ONCE = 500
LINES_KEPT = timedelta(hours=48)
"""How long the database remembers what replicas said."""
_TRUNCATED = f"... the log of this attempt ends here: it has {MOST_LINES:,} lines or {MOST_BYTES:,} bytes"

END_OF_LOG = Hot(
    select(func.max(logs.c.first_line + logs.c.line_count), func.sum(logs.c.byte_count)).where(
        logs.c.job_id == bindparam("b_job"), logs.c.claim_token == bindparam("b_token")
    )
)
APPEND = Hot(insert(logs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    claim_token: int
    first: int
    ts: datetime
    lines: tuple[str, ...]


def append(tx: Tx, key: ClaimKey, sent: LogLines) -> None:
    """Lines that are stored already are skipped. The caller holds the claim, so nobody else appends."""
    ((known, stored),) = tx.rows(END_OF_LOG, {"b_job": key.job_id, "b_token": key.token})
    end, room = known or 0, MOST_BYTES - int(stored or 0)
    lines = sent.lines[max(0, end - sent.first) :]
    if lines and end < MOST_LINES and room > 0:
        _insert(tx, key, max(end, sent.first), _fitting(lines, MOST_LINES - end, room))


def read(tx: Tx, job_id: JobId, since: tuple[int, int], limit: int) -> list[Piece]:
    """Pieces beyond the line `since` (claim token, line), in the order in which they were written."""
    token, line = since
    later = or_(
        logs.c.claim_token > token,
        and_(logs.c.claim_token == token, logs.c.first_line + logs.c.line_count > line),
    )
    query = select(logs).where(logs.c.job_id == job_id, later)
    found = records(tx, query.order_by(logs.c.claim_token, logs.c.first_line).limit(limit))
    return [_piece(row, since) for row in found]


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
    text = (
        text.replace("\0", "").encode(errors="replace").decode()
    )  # no database takes all that a text may hold
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


def _fitting(lines: Sequence[str], most: int, room: int) -> list[str]:
    """As many as there is room for; the last word says that there were more."""
    kept: list[str] = []
    for line in lines:
        room -= len(line.encode(errors="replace")) + 1
        if len(kept) == most - 1 or room < 0:
            return [*kept, _TRUNCATED]
        kept.append(line)
    return kept


def _insert(tx: Tx, key: ClaimKey, first: int, lines: Sequence[str]) -> None:
    clean = [line.encode(errors="replace").decode().replace("\0", "\ufffd") for line in lines]
    full = _TRUNCATED in clean[-1:]
    tx.run(
        APPEND,
        {
            "job_id": key.job_id,
            "claim_token": key.token,
            "first_line": first,
            "ts": tx.now(),
            # A log that is full counts as having all its lines, so that nothing more is added.
            "line_count": max(len(clean), MOST_LINES - first) if full else len(clean),
            "byte_count": sum(len(line.encode()) + 1 for line in clean),
            "lines": json.dumps(clean, ensure_ascii=False),
        },
    )


def _piece(row: dict[str, object], since: tuple[int, int]) -> Piece:
    token, first = int(str(row["claim_token"])), int(str(row["first_line"]))
    lines: list[str] = json.loads(str(row["lines"]))
    skip = max(0, since[1] - first) if token == since[0] else 0
    ts = row["ts"]
    assert isinstance(ts, datetime)
    return Piece(claim_token=token, first=first + skip, ts=ts, lines=tuple(lines[skip:]))
