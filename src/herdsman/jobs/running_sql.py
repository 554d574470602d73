"""One worker's right to one job: kept alive, and ended. Every statement names the claim's token (J3)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import bindparam, case, exists, func, insert, null, or_, select, update

from herdsman.db.connection import Tx
from herdsman.db.schema import job_bodies, job_ends, jobs
from herdsman.db.statements import PreparedStatement, one_of
from herdsman.errors import StaleWrite
from herdsman.ids import JobId, WorkerId, check_name
from herdsman.jobs.model import ClaimKey
from herdsman.jobs.protocol import Done
from herdsman.jobs.rules import Ending, Holding
from herdsman.states import HELD, JOB, JobStatus, Reason

LARGEST_TOKEN = 2**63
_IS_HELD = one_of(jobs.c.status, HELD)
_THIS_CLAIM = (jobs.c.job_id == bindparam("b_job"), jobs.c.claim_token == bindparam("b_token"))
# Tokens are small numbers, easy to guess: where the speaker is known, the claim must also be its own (X7).
_ITS_OWN = jobs.c.last_worker_id == func.coalesce(
    bindparam("b_worker", type_=jobs.c.last_worker_id.type), jobs.c.last_worker_id
)
OWN_CLAIM = (*_THIS_CLAIM, _ITS_OWN, _IS_HELD)
_STEP: dict[str, Any] = {"version": jobs.c.version + 1, "updated_at": bindparam("b_now"), "actor": bindparam("b_actor")}
START = PreparedStatement(
    update(jobs)
    .where(*_THIS_CLAIM, _ITS_OWN, jobs.c.status == JobStatus.CLAIMED.value)
    .values(
        **_STEP,
        status=JobStatus.RUNNING.value,
        reason=Reason.STARTED.value,
        started_at=bindparam("b_now"),
        begun_by=func.coalesce(bindparam("b_incarnation", type_=jobs.c.begun_by.type), jobs.c.begun_by),
        deadline_at=bindparam("b_deadline"),
    )
)
RENEW = PreparedStatement(
    update(jobs)
    .where(*_THIS_CLAIM, _IS_HELD, jobs.c.worker_id == bindparam("b_worker"))
    .values(claim_expires_at=bindparam("b_expires"))
)
PROGRESS = PreparedStatement(
    update(jobs)
    .where(*OWN_CLAIM)
    .values(
        progress=bindparam("b_progress"),
        progress_note=bindparam("b_note"),
        progress_at=bindparam("b_now"),
        claim_expires_at=bindparam("b_expires"),
    )
)
# Of a job whose start was not written: it ran for so long, and not before it was claimed.
_BEGAN = bindparam("b_began", type_=jobs.c.started_at.type)
_STARTED_AT = func.coalesce(jobs.c.started_at, case((jobs.c.claimed_at > _BEGAN, jobs.c.claimed_at), else_=_BEGAN))
_DONE = (
    update(jobs)
    # A cancellation that was acknowledged wins over a result that comes later (J7).
    .where(*OWN_CLAIM, jobs.c.cancel_requested_at.is_(None))
    .values(
        **_STEP,
        status=JobStatus.DONE.value,
        finished_at=bindparam("b_now"),
        worker_id=null(),
        claim_expires_at=null(),
        deadline_at=null(),
    )
)
COMPLETE = PreparedStatement(_DONE.values(reason=Reason.COMPLETED.value))
COMPLETE_RAN = PreparedStatement(_DONE.values(reason=Reason.COMPLETED.value, started_at=_STARTED_AT))
RECOVER = PreparedStatement(_DONE.values(reason=Reason.RECOVERED.value))
_ENDED = {
    "job_id": bindparam("b_job", type_=jobs.c.job_id.type),
    "claim_token": bindparam("b_token", type_=jobs.c.claim_token.type),
    "result": bindparam("b_result", type_=job_ends.c.result.type),
    "saved_gpu_s": bindparam("b_saved", type_=job_ends.c.saved_gpu_s.type),
}
STORE_RESULT = PreparedStatement(insert(job_ends).values(_ENDED))
_LEFT = exists(
    select(job_ends.c.job_id).where(job_ends.c.job_id == jobs.c.job_id, job_ends.c.claim_token == jobs.c.claim_token)
)
STORE_RESULT_IF_DONE = PreparedStatement(
    insert(job_ends).from_select(
        list(_ENDED),
        select(*_ENDED.values()).where(
            exists(
                select(jobs.c.job_id).where(
                    *(*_THIS_CLAIM, _ITS_OWN),
                    *(jobs.c.updated_at == bindparam("b_now"), jobs.c.status == JobStatus.DONE.value, ~_LEFT),
                )
            )
        ),
    )
)
_FAILED: dict[str, Any] = {each: bindparam(f"b_{each}") for each in ("failure_class", "last_error")}
STORE_FAILURE = PreparedStatement(
    insert(job_ends).values(job_id=bindparam("b_job"), claim_token=bindparam("b_token"), **_FAILED)
)
_FINISHED = bindparam("b_finished", type_=jobs.c.finished_at.type)
_END = (
    update(jobs)
    .where(*_THIS_CLAIM, _IS_HELD)
    .values(
        **_STEP,
        status=bindparam("b_status"),
        reason=bindparam("b_reason"),
        finished_at=_FINISHED,
        # What is to be claimed again has no attempt; the guards put this one away.
        claimed_at=case((_FINISHED.is_(None), null()), else_=jobs.c.claimed_at),
        started_at=case((_FINISHED.is_(None), null()), else_=jobs.c.started_at),
        run_at=bindparam("b_run_at"),
        place=bindparam("b_place"),
        interruptions=bindparam("b_interruptions"),
        worker_losses=bindparam("b_worker_losses"),
        out_of_memory=bindparam("b_out_of_memory"),
        worker_id=null(),
        claim_expires_at=null(),
        deadline_at=null(),
    )
)
END = PreparedStatement(_END)
END_AHEAD = PreparedStatement(_END.values(attempts=bindparam("b_attempts"), started_at=_STARTED_AT))
_HOLDING = select(
    *(
        jobs.c[column]
        if column in jobs.c
        else select(job_bodies.c[column]).where(job_bodies.c.job_id == jobs.c.job_id).scalar_subquery()
        for column in Holding._fields
    )
)
HOLDING = PreparedStatement(_HOLDING.where(*OWN_CLAIM).with_for_update())
OVERDUE = PreparedStatement(
    _HOLDING.where(
        jobs.c.worker_id.is_not(None),
        or_(
            jobs.c.claim_expires_at < bindparam("b_now"),
            jobs.c.deadline_at < bindparam("b_overdue"),
            jobs.c.cancel_requested_at < bindparam("b_overdue"),
        ),
    )
    .limit(bindparam("b_limit"))
    .with_for_update(skip_locked=True)
)
HELD_BY = PreparedStatement(_HOLDING.where(jobs.c.worker_id == bindparam("b_worker")).with_for_update(skip_locked=True))
CANCELLED = PreparedStatement(
    lambda listed: select(jobs.c.job_id, jobs.c.claim_token).where(
        jobs.c.job_id.in_(listed), jobs.c.cancel_requested_at.is_not(None)
    )
)


class ClaimState(NamedTuple):
    """Where a job stands, for whoever was refused: columns of its row."""

    status: str
    claim_token: int
    cancel_requested_at: datetime | None
    last_worker_id: WorkerId | None
    timeout_s: float | None
    begun_by: str | None


CLAIM_STATE = PreparedStatement(
    select(*(jobs.c[column] for column in ClaimState._fields)).where(jobs.c.job_id == bindparam("b_job"))
)


def start(
    tx: Tx,
    begun: Sequence[tuple[ClaimKey, datetime | None]],
    who: str,
    worker: WorkerId | None = None,
    incarnation: str | None = None,
) -> int:
    """Claims and the deadlines of their jobs; how many of the claims were good and not started before."""
    shared = {"b_now": tx.now(), "b_actor": who, "b_worker": worker, "b_incarnation": incarnation}
    return tx.run_many(START, [{**named(key), **shared, "b_deadline": deadline} for key, deadline in begun])


def renew(tx: Tx, keys: Sequence[ClaimKey], worker_id: WorkerId, expires_at: datetime) -> int:
    """Only the worker that holds a job keeps it: a token alone is not a right."""
    return tx.run_many(RENEW, [{**named(key), "b_worker": worker_id, "b_expires": expires_at} for key in keys])


def cancelled(tx: Tx, keys: Sequence[ClaimKey]) -> frozenset[ClaimKey]:
    """Those of the claims whose jobs somebody cancelled."""
    found = tx.rows(CANCELLED, {}, [key.job_id for key in keys])
    return frozenset(ClaimKey(JobId(job_id), token) for job_id, token in found).intersection(keys)


def progress(
    tx: Tx, key: ClaimKey, done: float, note: str | None, expires_at: datetime, worker: WorkerId | None = None
) -> bool:
    values = {"b_progress": done, "b_note": note, "b_now": tx.now(), "b_expires": expires_at}
    return tx.run(PROGRESS, {**named(key), **values, "b_worker": worker}) == 1


def complete(tx: Tx, results: Sequence[tuple[Done, str, WorkerId | None]]) -> int:
    """Their results are JSON text, each with who tells it. How many of the claims were still good; with one too few, ask
    `claim_state` which."""
    rows: list[dict[str, Any]] = [
        {
            **named(done.key),
            "b_now": tx.now(),
            "b_actor": who,
            "b_worker": worker,
            "b_result": done.result,
            "b_saved": None if done.saved is None else done.saved.total_seconds(),
            "b_began": None if done.ran is None else tx.now() - done.ran,
        }
        for done, who, worker in results
    ]
    rows.sort(key=lambda row: row["b_job"])  # in one order, so that two cannot wait for each other
    made = [row for row in rows if row["b_saved"] is None]
    good = 0
    for statement, timed in ((COMPLETE, False), (COMPLETE_RAN, True)):
        if some := [row for row in made if (row["b_began"] is not None) == timed]:
            good += tx.run_many(statement, some)
    for row in rows:
        if row["b_saved"] is not None:  # rare, so one at a time
            good += tx.run(RECOVER, row)
    if 0 < good == len(rows):
        tx.run_many(STORE_RESULT, rows)
    elif good:
        for row in rows:
            tx.run(STORE_RESULT_IF_DONE, row)
    return good


def end(tx: Tx, ending: Ending, who: str, ran: timedelta | None = None) -> bool:
    job, now, failure = ending.job, tx.now(), ending.failure
    values = {
        "b_now": now,
        "b_actor": who,
        "b_status": ending.status.value,
        "b_reason": ending.reason.value,
        "b_finished": now if ending.status in JOB.terminal else None,
        "b_run_at": job.run_at,
        "b_place": job.place,
        "b_interruptions": job.interruptions,
        "b_worker_losses": job.worker_losses,
        "b_out_of_memory": job.out_of_memory,
    }
    key = {"b_job": job.job_id, "b_token": job.claim_token}
    if ran is None and ending.reason is not Reason.NOT_BEGUN:
        changed = tx.run(END, {**key, **values})
    else:
        began = None if ran is None else now - ran
        changed = tx.run(END_AHEAD, {**key, **values, "b_attempts": job.attempts, "b_began": began})
    if changed != 1:
        return False
    tx.run(STORE_FAILURE, {**key, "b_failure_class": failure.kind.value, "b_last_error": failure.error})
    return True


def holding(tx: Tx, key: ClaimKey, worker: WorkerId | None = None) -> Holding | None:
    """The job if this claim still holds it, locked."""
    found = tx.rows(HOLDING, {**named(key), "b_worker": worker})
    return Holding(*found[0]) if found else None


def overdue(tx: Tx, grace: timedelta, limit: int) -> list[Holding]:
    """Held jobs whose worker fell silent, or lets them run on long after their deadline or cancellation."""
    wanted = {"b_now": tx.now(), "b_overdue": tx.now() - grace, "b_limit": limit}
    return [Holding(*row) for row in tx.rows(OVERDUE, wanted)]


def held_by(tx: Tx, worker: WorkerId) -> list[Holding]:
    """All that this worker holds, locked."""
    return [Holding(*row) for row in tx.rows(HELD_BY, {"b_worker": worker})]


def claim_state(tx: Tx, job_id: JobId) -> ClaimState | None:
    check_name("job_id", job_id, 128)
    found = tx.rows(CLAIM_STATE, {"b_job": job_id})
    return ClaimState(*found[0]) if found else None


def named(key: ClaimKey) -> dict[str, Any]:
    check_name("job_id", key.job_id, 128)
    if not 0 <= key.token < LARGEST_TOKEN:
        raise StaleWrite(f"claim {key.token} of job {key.job_id!r} was never given out")
    return {"b_job": key.job_id, "b_token": key.token}
