"""What attempts wrote and left behind, and what happened to everything."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from herdsman.control.commands.refusal import refusal
from herdsman.control.services import Services
from herdsman.core.body import encode
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import AuditEntry, ClaimKey, JobId, WorkerId
from herdsman.core.request import check_name
from herdsman.core.states import JOB
from herdsman.db.connection import Tx
from herdsman.store import claims, jobs, logs

MOST_PIECES = 200
MOST_EVENTS = 1000
SETTLED = timedelta(seconds=2)
"""A gap in the audit's numbers is a transaction under way; one that is older was given up."""


@dataclass(frozen=True, slots=True)
class LogPage:
    pieces: Sequence[logs.Piece]
    next: str
    """Send it as `since` to get what came later."""
    ended: bool


def read_logs(
    services: Services, job_id: JobId, *, since: str | None = None, limit: int = MOST_PIECES
) -> LogPage:
    after = _parse(since)
    return services.database.read(lambda tx: _read(tx, job_id, after, limit))


def read_events(services: Services, after: int, *, limit: int = MOST_EVENTS) -> Sequence[AuditEntry]:
    """Everything that happened since the event `after`, in order; nothing that is still being written is passed over."""
    return services.database.read(lambda tx: jobs.events(tx, after, limit, SETTLED))


def last_event(services: Services) -> int:
    return services.database.read(jobs.last_event)


def get_checkpoint(services: Services, key: ClaimKey, *, worker: WorkerId | None = None) -> object:
    """What an earlier attempt, or this one, has put there."""
    text = services.database.transact(lambda tx: _get(tx, key, worker))
    return None if text is None else json.loads(text)


def put_checkpoint(
    services: Services, key: ClaimKey, value: object, *, worker: WorkerId | None = None
) -> None:
    text = encode(value, what="checkpoint", limit=services.policy.max_result_bytes)
    services.database.transact(lambda tx: _put(tx, key, text, worker))


def _read(tx: Tx, job_id: JobId, after: tuple[int, int], limit: int) -> LogPage:
    check_name("job_id", job_id, 128)
    job = jobs.get(tx, job_id)  # read first: what a job wrote before its end is there then
    pieces = logs.read(tx, job_id, after, min(limit, MOST_PIECES))
    if pieces:
        after = (pieces[-1].claim_token, pieces[-1].first + len(pieces[-1].lines))
    return LogPage(pieces, f"{after[0]}.{after[1]}", job.state in JOB.terminal and len(pieces) < limit)


def _parse(since: str | None) -> tuple[int, int]:
    if since is None:
        return (0, 0)
    token, dot, line = since.partition(".")
    if not (dot and token.isdecimal() and line.isdecimal() and len(since) < 40):
        raise InvalidRequest(f"since is {since[:60]!r}: it must be the `next` of an earlier answer")
    return (min(int(token), 2**63 - 1), min(int(line), 2**31 - 1))


def _get(tx: Tx, key: ClaimKey, worker: WorkerId | None) -> str | None:
    if claims.holding(tx, key, worker) is None:
        raise refusal(tx, key, "read the checkpoint of")
    return logs.get_checkpoint(tx, key.job_id)


def _put(tx: Tx, key: ClaimKey, text: str, worker: WorkerId | None) -> None:
    if claims.holding(tx, key, worker) is None:
        raise refusal(tx, key, "leave a checkpoint for")
    logs.put_checkpoint(tx, key, text)
