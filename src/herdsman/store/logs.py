"""What attempts wrote, and what they left for the next one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, bindparam, func, insert, or_, select, update

from herdsman.core.model import ClaimKey, JobId
from herdsman.core.work import LogLines
from herdsman.store.database import Tx
from herdsman.store.hot import Hot
from herdsman.store.reading import record, records
from herdsman.store.schema_api import checkpoints, logs

MOST_LINES = 10_000
MOST_BYTES = 1_048_576
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
