"""What a worker says while it holds jobs: they have begun, it lives, they get on."""

import math
from collections.abc import Mapping, Sequence

import structlog

from herdsman.control.commands.refusal import refusal
from herdsman.control.services import Services
from herdsman.control.snapshot import why_not_active
from herdsman.core.body import clean
from herdsman.core.errors import InvalidRequest, NotFound, StaleWrite
from herdsman.core.gpu import GpuReport
from herdsman.core.installation import LEAP
from herdsman.core.leasing import LeaseMode
from herdsman.core.model import Beat, ClaimKey, WorkerId
from herdsman.core.states import WorkerState
from herdsman.core.work import MOST_AT_ONCE, Orders, Progress, Pulse
from herdsman.db.connection import Tx
from herdsman.store import claims, gpus, installation, leases, logs, models, worker_types, workers

log = structlog.get_logger()

LONGEST_NOTE = 255


def start_job(
    services: Services,
    key: ClaimKey,
    *,
    who: str = "worker",
    worker: WorkerId | None = None,
    incarnation: str | None = None,
) -> None:
    """Only who has said it may say it again: what one incarnation of a worker has begun is no other's (J11)."""
    services.database.transact(lambda tx: _start(tx, key, who, worker, incarnation))


def start_jobs(
    services: Services,
    keys: Sequence[ClaimKey],
    *,
    who: str = "worker",
    worker: WorkerId | None = None,
    incarnation: str | None = None,
) -> Mapping[ClaimKey, str]:
    """Those that may not start, and why; the others have."""
    check_count(keys)

    def start_all(tx: Tx) -> dict[ClaimKey, str]:
        refused: dict[ClaimKey, str] = {}
        for key in keys:
            try:
                _start(tx, key, who, worker, incarnation)
            except (StaleWrite, NotFound) as error:
                refused[key] = str(error)
        return refused

    return services.database.transact(start_all)


def beat(
    services: Services, worker_id: WorkerId, key: ClaimKey | None = None, report: GpuReport | None = None
) -> Beat:
    """The beat of a worker with one job or none; a claim that is another's by now is `StaleWrite`."""
    pulse = Pulse(keys=() if key is None else (key,), report=report)
    return services.database.transact(lambda tx: _beat(tx, services, worker_id, pulse))


def take_pulse(services: Services, worker_id: WorkerId, pulse: Pulse) -> Orders:
    """One word keeps the worker and its claims alive together, and brings back what it must do."""
    check_count(pulse.keys)
    for each in pulse.progress.values():
        _check_progress(each.done)
    return services.database.transact(lambda tx: _pulse(tx, services, worker_id, pulse))


def report_progress(
    services: Services,
    key: ClaimKey,
    done: float,
    note: str | None = None,
    *,
    worker: WorkerId | None = None,
) -> None:
    """`done` from 0 to 1. Progress is a sign of life, so it renews the claim as well."""
    _check_progress(done)
    progress = Progress(done=done, note=note)
    services.database.transact(lambda tx: _progress(tx, services, key, progress, worker))


def check_count(keys: Sequence[object]) -> None:
    if len(keys) > MOST_AT_ONCE:
        raise InvalidRequest(f"{len(keys)} claims were named, the limit is {MOST_AT_ONCE}")


def _check_progress(done: float) -> None:
    if not (math.isfinite(done) and 0 <= done <= 1):
        raise InvalidRequest(f"progress is {done}: it must be from 0 to 1")


def _start(tx: Tx, key: ClaimKey, who: str, worker: WorkerId | None, incarnation: str | None) -> None:
    standing = claims.standing(tx, key.job_id)
    if standing is not None and standing.runs(key, worker, incarnation):
        return  # said before; the answer was lost
    deadline = tx.now() + standing.timeout if standing and standing.timeout else None
    if not claims.start(tx, [(key, deadline)], who, worker, incarnation):
        raise refusal(tx, key, "start")


def _beat(tx: Tx, services: Services, worker_id: WorkerId, pulse: Pulse) -> Beat:
    orders = _pulse(tx, services, worker_id, pulse)
    for key in orders.lost:
        raise refusal(tx, key, "keep")
    return Beat(expires_at=orders.expires_at, cancel=bool(orders.cancel), drain=orders.drain)


def _pulse(tx: Tx, services: Services, worker_id: WorkerId, pulse: Pulse) -> Orders:
    state = workers.beat(tx, worker_id, pulse.report)
    models.note_models(tx, worker_id, pulse.models, pulse.revision, pulse.trouble)
    if pulse.unfit is not None:
        worker_types.note_unfit(tx, worker_id, pulse.unfit)
    if pulse.report is not None:
        gpus.note(tx, worker_id, pulse.report, services.leasing)
    expires_at = tx.now() + services.policy.claim_ttl
    drain = state is WorkerState.TERMINATING
    load = None if drain else models.load_order(tx, worker_id)
    starting = state is WorkerState.SPAWNING
    not_active = why_not_active(tx, services.fleet(), worker_id) if starting else None
    if not pulse.keys:
        return Orders(expires_at=expires_at, drain=drain, load=load, not_active=not_active)
    lost = _renew(tx, services, worker_id, pulse.keys)
    if services.leasing.mode is not LeaseMode.OFF:
        leases.renew_of(tx, worker_id, expires_at)
    kept = [key for key in pulse.keys if key not in lost]
    for key in kept:
        if (progress := pulse.progress.get(key)) is not None:
            _progress(tx, services, key, progress, worker_id)
        if (lines := pulse.logs.get(key)) is not None:
            logs.append(tx, key, lines)
    cancel = claims.cancelled(tx, kept) if kept else frozenset[ClaimKey]()
    return Orders(
        expires_at=expires_at, drain=drain, cancel=cancel, lost=lost, load=load, not_active=not_active
    )


def _renew(
    tx: Tx, services: Services, worker_id: WorkerId, keys: Sequence[ClaimKey]
) -> Mapping[ClaimKey, str]:
    """Together, as they almost always hold; one by one when one of them does not."""
    expires_at = tx.now() + services.policy.claim_ttl
    if claims.renew(tx, keys, worker_id, expires_at) == len(keys):
        return {}
    gone = [key for key in keys if not claims.renew(tx, [key], worker_id, expires_at)]
    for key in gone:
        _notice_lost_time(tx, worker_id, key)
    return {key: str(refusal(tx, key, "keep")) for key in gone}


def _notice_lost_time(tx: Tx, worker_id: WorkerId, key: ClaimKey) -> None:
    """Tokens are given out here: a worker that knows a higher one got it from a later state of this database.

    Its word alone stops nothing, for it may lie; but that token is not given out again.
    """
    standing = claims.standing(tx, key.job_id)
    if standing is None or not standing.token < key.token <= standing.token + LEAP:
        return
    said = (
        f"worker {worker_id} holds claim {key.token} of job {key.job_id}, and it remembers {standing.token}"
    )
    log.warning("database.may_have_gone_back", reason=said)
    installation.raise_token(tx, key)
    installation.hint(tx, said)


def _progress(tx: Tx, services: Services, key: ClaimKey, progress: Progress, worker: WorkerId | None) -> None:
    note = progress.note and clean(progress.note, LONGEST_NOTE)
    expires_at = tx.now() + services.policy.claim_ttl
    if not claims.progress(tx, key, progress.done, note, expires_at, worker):
        raise refusal(tx, key, "report on")
