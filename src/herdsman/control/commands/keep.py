"""What a worker says while it holds a job: it has begun, it lives, it gets on."""

import math

from herdsman.control.commands.refusal import refusal
from herdsman.control.services import Services
from herdsman.core.body import clean
from herdsman.core.errors import InvalidRequest
from herdsman.core.gpu import GpuReport
from herdsman.core.model import Beat, ClaimKey, WorkerId
from herdsman.core.states import JobState, WorkerState
from herdsman.store import claims, workers
from herdsman.store.database import Tx

LONGEST_NOTE = 255


def start_job(services: Services, key: ClaimKey, *, who: str = "worker") -> None:
    services.database.transact(lambda tx: _start(tx, key, who))


def beat(
    services: Services, worker_id: WorkerId, key: ClaimKey | None = None, report: GpuReport | None = None
) -> Beat:
    """One word keeps the worker and its claim alive together, and brings back what it must do."""
    return services.database.transact(lambda tx: _beat(tx, services, worker_id, key, report))


def report_progress(services: Services, key: ClaimKey, done: float, note: str | None = None) -> None:
    """`done` from 0 to 1. Progress is a sign of life, so it renews the claim as well."""
    if not (math.isfinite(done) and 0 <= done <= 1):
        raise InvalidRequest(f"progress is {done}: it must be from 0 to 1")
    services.database.transact(
        lambda tx: _progress(tx, services, key, done, note and clean(note, LONGEST_NOTE))
    )


def _start(tx: Tx, key: ClaimKey, who: str) -> None:
    standing = claims.standing(tx, key.job_id)
    if standing is not None and (standing.token, standing.state) == (key.token, JobState.RUNNING):
        return  # said before; the answer was lost
    deadline = tx.now() + standing.timeout if standing and standing.timeout else None
    if not claims.start(tx, key, who, deadline):
        raise refusal(tx, key, "start")


def _beat(
    tx: Tx, services: Services, worker_id: WorkerId, key: ClaimKey | None, report: GpuReport | None
) -> Beat:
    state = workers.beat(tx, worker_id, report)
    expires_at = tx.now() + services.policy.claim_ttl
    cancel = key is not None and _renew(tx, services, worker_id, key)
    return Beat(expires_at=expires_at, cancel=cancel, drain=state is WorkerState.TERMINATING)


def _renew(tx: Tx, services: Services, worker_id: WorkerId, key: ClaimKey) -> bool:
    if not claims.renew(tx, key, worker_id, tx.now() + services.policy.claim_ttl):
        raise refusal(tx, key, "keep")
    standing = claims.standing(tx, key.job_id)
    return standing is not None and standing.cancel_requested


def _progress(tx: Tx, services: Services, key: ClaimKey, done: float, note: str | None) -> None:
    if not claims.progress(tx, key, done, note, tx.now() + services.policy.claim_ttl):
        raise refusal(tx, key, "report on")
