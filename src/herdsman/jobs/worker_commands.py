"""What a worker says of its claims: started, kept alive, finished."""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

import structlog

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.db.schema import SERVICE
from herdsman.errors import HerdsmanError, InvalidRequest, NotFound, StaleWrite
from herdsman.fleet import installation_sql, workers_sql
from herdsman.fleet import sql as fleet_sql
from herdsman.fleet.model import LEAP
from herdsman.fleet.observe import why_not_active
from herdsman.ids import WorkerId
from herdsman.jobs import attempts_sql, protocol, running_sql
from herdsman.jobs.assign import check_request, give, note_types
from herdsman.jobs.claim_sql import LOCK_WORKERS
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass
from herdsman.jobs.rules import behind_the_first, end_of, not_begun
from herdsman.json_text import clean, encode
from herdsman.leases import gpus_sql
from herdsman.leases import sql as leases_sql
from herdsman.leases.rules import LeaseMode
from herdsman.limits.control_policy import ControlPolicy
from herdsman.redis import sql as redis_sql
from herdsman.states import JobStatus, WorkerStatus


def refusal(tx: Tx, key: ClaimKey, verb: str) -> HerdsmanError:
    """Why a claim no longer holds, in words that tell the worker what to do."""
    now = running_sql.claim_state(tx, key.job_id)
    if now is None:
        return NotFound(f"there is no job {key.job_id!r}")
    return StaleWrite(
        f"claim {key.token} may not {verb} job {key.job_id!r}, which is {now.status} under claim {now.claim_token}:"
        " stop working on it"
    )


LONGEST_ERROR = 8192


class Finish(StrEnum):
    """What became of a result that a worker sent."""

    DONE = "done"
    CANCELLED = "cancelled"
    """The job had been cancelled: the result was thrown away, and the worker is free."""


def complete_job(
    services: Services,
    key: ClaimKey,
    result: object = None,
    *,
    saved: timedelta | None = None,
    who: str = "worker",
    worker: WorkerId | None = None,
) -> Finish:
    """Store the result. Sending it again is harmless; sending it on an old claim is `StaleWrite`.

    `saved` says that it had been made before and was only found, and which GPU time that spared.
    """
    done = [(protocol.Done(key, result, saved), who, worker)]
    (outcome,) = services.database.transact(lambda tx: complete_all(tx, services, done))
    if isinstance(outcome, HerdsmanError):
        raise outcome
    return outcome


def fail_job(
    services: Services, key: ClaimKey, failure: Failure, *, who: str = "worker", worker: WorkerId | None = None
) -> JobStatus:
    """What the job became: `failed` until its retry, `dead_letter`, `pending`, or `cancelled`."""
    return services.database.transact(lambda tx: end_claim(tx, services, protocol.Failed(key, failure), who, worker))


def release_job(
    services: Services, key: ClaimKey, why: str, *, who: str = "worker", worker: WorkerId | None = None
) -> JobStatus:
    """Give the job back unharmed: it keeps its place, and the attempt does not count against it."""
    return services.database.transact(lambda tx: end_claim(tx, services, protocol.GivenBack(key, why), who, worker))


def complete_all(
    tx: Tx, services: Services, results: Sequence[tuple[protocol.Done, str, WorkerId | None]]
) -> list[Finish | HerdsmanError]:
    """Each with who tells it, within a transaction that does more. `InvalidRequest` for what cannot be stored, which
    holds up no other."""
    outcomes: list[Finish | HerdsmanError] = []
    stored: list[tuple[protocol.Done, str, WorkerId | None]] = []
    for done, who, worker in results:
        try:
            if done.saved is not None:
                protocol.check_saved(done.saved)
            text = encode(done.result, what="result", limit=services.policy.max_result_bytes)
            stored.append((replace(done, result=text), who, worker))
            outcomes.append(Finish.DONE)
        except InvalidRequest as error:  # another report on this job may follow
            outcomes.append(error)
    if running_sql.complete(tx, stored) == len(stored):
        return outcomes
    return [
        _look(tx, services, done.key, who, worker) if outcome is Finish.DONE else outcome
        for outcome, (done, who, worker) in zip(outcomes, results, strict=True)
    ]


def _look(tx: Tx, services: Services, key: ClaimKey, who: str, worker: WorkerId | None) -> Finish | HerdsmanError:
    now = running_sql.claim_state(tx, key.job_id)
    if now is not None and now.claim_token == key.token and worker in (None, now.last_worker_id):
        if now.status == JobStatus.DONE:
            return Finish.DONE
        if now.cancel_requested_at and running_sql.holding(tx, key, worker):
            failure = Failure(kind=FailureClass.INTERRUPTED, error="cancelled; the result came too late")
            end_claim(tx, services, protocol.Failed(key, failure), who, worker)
            return Finish.CANCELLED
    return refusal(tx, key, "complete")


def end_claim(
    tx: Tx, services: Services, ended: protocol.Failed | protocol.GivenBack, who: str, worker: WorkerId | None = None
) -> JobStatus:
    """The end of a claim without a result, within a transaction that does more."""
    held = running_sql.holding(tx, ended.key, worker)
    if held is None:
        raise refusal(tx, ended.key, "end")
    failure = replace(ended.failure, error=clean(ended.failure.error, LONGEST_ERROR))
    match ended:
        case protocol.GivenBack(begun=False) if held.status == JobStatus.CLAIMED:
            ending, ran = not_begun(held, failure), None
        case protocol.Failed() | protocol.GivenBack():
            ending = end_of(held, failure, tx.now(), services.policy)
            ran = ended.ran if isinstance(ended, protocol.Failed) else None
    if not running_sql.end(tx, ending, who, ran):
        raise StaleWrite(f"job {ended.key.job_id!r} moved on while its claim ended")
    return ending.status


def lose_claim(tx: Tx, services: Services, key: ClaimKey, failure: Failure, who: str) -> JobStatus:
    """A claim of a worker that is gone. What it had taken ahead is not charged to the job, nor to its attempts."""
    held = running_sql.holding(tx, key)
    others = [] if held is None or held.worker_id is None else running_sql.held_by(tx, held.worker_id)
    if any(each.job_id == key.job_id for each in behind_the_first(others)):
        return end_claim(tx, services, protocol.GivenBack(key, failure.error, begun=False), who)
    return end_claim(tx, services, protocol.Failed(key, failure), who)


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


def record_heartbeat(
    services: Services, worker_id: WorkerId, heartbeat: protocol.WorkerHeartbeat
) -> protocol.HeartbeatReply:
    """One request keeps the worker and its claims alive together, and brings back what it must do."""
    check_count(heartbeat.keys)
    for each in heartbeat.progress.values():
        _check_progress(each.done)

    def record(tx: Tx) -> protocol.HeartbeatReply:
        state = workers_sql.record_heartbeats(tx, worker_id, heartbeat.report)
        fleet_sql.note_models(tx, worker_id, heartbeat.models, heartbeat.revision, heartbeat.trouble)
        if heartbeat.unfit is not None:
            workers_sql.note_unfit(tx, worker_id, heartbeat.unfit)
        if heartbeat.report is not None:
            gpus_sql.note_gpus(tx, worker_id, heartbeat.report, services.leasing)
        expires_at = tx.now() + services.policy.claim_ttl
        drain = state is WorkerStatus.TERMINATING
        reply = protocol.HeartbeatReply(
            expires_at=expires_at,
            drain=drain,
            load=None if drain else fleet_sql.load_order(tx, worker_id),
            not_active=why_not_active(tx, services.fleet(), worker_id) if state is WorkerStatus.SPAWNING else None,
        )
        return _keep_claims(tx, services, worker_id, heartbeat, reply) if heartbeat.keys else reply

    return services.database.transact(record)


def report_progress(
    services: Services, key: ClaimKey, done: float, note: str | None = None, *, worker: WorkerId | None = None
) -> None:
    """`done` from 0 to 1. Progress is a sign of life, so it renews the claim as well."""
    _check_progress(done)
    progress = protocol.Progress(done=done, note=note)
    services.database.transact(lambda tx: _progress(tx, services, key, progress, worker))


def check_count(keys: Sequence[object]) -> None:
    if len(keys) > protocol.MOST_AT_ONCE:
        raise InvalidRequest(f"{len(keys)} claims were named, the limit is {protocol.MOST_AT_ONCE}")


def _check_progress(done: float) -> None:
    if not (math.isfinite(done) and 0 <= done <= 1):
        raise InvalidRequest(f"progress is {done}: it must be from 0 to 1")


def _start(tx: Tx, key: ClaimKey, who: str, worker: WorkerId | None, incarnation: str | None) -> None:
    now = running_sql.claim_state(tx, key.job_id)
    if (
        now is not None
        and now.claim_token == key.token
        and worker in (None, now.last_worker_id)
        and now.status == JobStatus.RUNNING
        and now.begun_by == incarnation
    ):
        return  # said before; the answer was lost
    deadline = tx.now() + timedelta(seconds=now.timeout_s) if now and now.timeout_s else None
    if not running_sql.start(tx, [(key, deadline)], who, worker, incarnation):
        raise refusal(tx, key, "start")


def _keep_claims(
    tx: Tx, services: Services, worker_id: WorkerId, heartbeat: protocol.WorkerHeartbeat, reply: protocol.HeartbeatReply
) -> protocol.HeartbeatReply:
    """Renewed together, as they almost always hold; one by one when one of them does not."""
    keys, lost = heartbeat.keys, dict[ClaimKey, str]()
    if running_sql.renew(tx, keys, worker_id, reply.expires_at) != len(keys):
        gone = [key for key in keys if not running_sql.renew(tx, [key], worker_id, reply.expires_at)]
        for key in gone:
            _notice_lost_time(tx, worker_id, key)
            lost[key] = str(refusal(tx, key, "keep"))
    if services.leasing.mode is not LeaseMode.OFF:
        leases_sql.renew_of(tx, worker_id, reply.expires_at)
    kept = [key for key in keys if key not in lost]
    for key in heartbeat.begun:
        with suppress(StaleWrite, NotFound):
            _start(tx, key, f"worker:{worker_id}", worker_id, None)
    for key in kept:
        if (progress := heartbeat.progress.get(key)) is not None:
            _progress(tx, services, key, progress, worker_id)
        if (lines := heartbeat.logs.get(key)) is not None:
            attempts_sql.append_logs(tx, key, lines)
    cancel = running_sql.cancelled(tx, kept) if kept else frozenset[ClaimKey]()
    return replace(reply, cancel=cancel, lost=lost)


def _notice_lost_time(tx: Tx, worker_id: WorkerId, key: ClaimKey) -> None:
    """Tokens are given out here: a worker that knows a higher one got it from a later state of this database.

    Its word alone stops nothing, for it may lie; but that token is not given out again.
    """
    known = running_sql.claim_state(tx, key.job_id)
    if known is None or not known.claim_token < key.token <= known.claim_token + LEAP:
        return
    said = f"worker {worker_id} holds claim {key.token} of job {key.job_id}, and it remembers {known.claim_token}"
    log.warning("database.may_have_gone_back", reason=said)
    installation_sql.raise_token(tx, key)
    installation_sql.hint(tx, said)


def _progress(tx: Tx, services: Services, key: ClaimKey, progress: protocol.Progress, worker: WorkerId | None) -> None:
    note = progress.note and clean(progress.note, LONGEST_NOTE)
    expires_at = tx.now() + services.policy.claim_ttl
    if not running_sql.progress(tx, key, progress.done, note, expires_at, worker):
        raise refusal(tx, key, "report on")


@dataclass(frozen=True, slots=True)
class Report:
    """How jobs of a worker ended, and what it asks for then."""

    worker_id: WorkerId
    endings: Sequence[protocol.Ending]
    then: protocol.ClaimRequest | None = None

    def check(self) -> None:
        check_count(self.endings)
        for ending in self.endings:
            running_sql.named(ending.key)
        if self.then is not None:
            check_request(self.then)


def finish_jobs(
    services: Services,
    worker_id: WorkerId,
    endings: Sequence[protocol.Ending],
    then: protocol.ClaimRequest | None = None,
) -> protocol.FinishAndClaim:
    """One ending that is refused does not hold up the others; the next jobs come with the answer."""
    report = Report(worker_id, endings, then)
    report.check()
    note_types(services, {} if then is None else {worker_id: then})
    rules = services.rules()

    def finish(tx: Tx, report: Report) -> protocol.FinishAndClaim:
        (told,), claims = end_and_give(tx, services, [report], {}, rules)
        return protocol.FinishAndClaim(told=told, claims=claims)

    try:
        return services.database.transact(lambda tx: finish(tx, report))
    except Duplicate:  # a second request of this worker got a job in this very moment: it has its work
        return services.database.transact(lambda tx: finish(tx, replace(report, then=None)))


def end_and_give(
    tx: Tx,
    services: Services,
    reports: Sequence[Report],
    asks: Mapping[WorkerId, protocol.ClaimRequest],
    rules: ControlPolicy,
) -> tuple[list[list[protocol.FinishResult]], list[Claim]]:
    """What became of the jobs of each report, and the jobs of those who ask, in their reports or without (`asks`)."""
    if reports:
        # Workers before their jobs, as a heartbeat does, and in one order: two that lock in turn cannot get stuck.
        tx.rows(LOCK_WORKERS, {}, sorted({*asks, *(report.worker_id for report in reports)}))
    thens = {report.worker_id: report.then for report in reports if report.then is not None}
    later = {worker_id: then for worker_id, then in thens.items() if not then.held}
    if len(later) == len(thens):
        later, asks = {**asks, **later}, {}
    # Who goes on gets its next jobs before its last ones end, so that its leases are never without a claim and stay; and
    # whoever has nothing at hand is served before it.
    sooner = {**asks, **{worker_id: then for worker_id, then in thens.items() if then.held}}
    endings = {report.worker_id: len(report.endings) for report in reports}
    claims = give(tx, services, sooner, rules, endings) if sooner else []
    told = _end_all(tx, services, reports)
    return told, claims + (give(tx, services, later, rules) if later else [])


def _end_all(tx: Tx, services: Services, reports: Sequence[Report]) -> list[list[protocol.FinishResult]]:
    done = [
        (ending, f"worker:{report.worker_id}", report.worker_id)
        for report in reports
        for ending in report.endings
        if isinstance(ending, protocol.Done)
    ]
    completed = iter(complete_all(tx, services, done) if done else ())

    def end(ending: protocol.Ending, worker: WorkerId) -> protocol.FinishResult:
        outcome: Finish | JobStatus | HerdsmanError
        try:
            if isinstance(ending, protocol.Done):
                outcome = next(completed)
            else:
                outcome = end_claim(tx, services, ending, f"worker:{worker}", worker)
        except (StaleWrite, NotFound) as error:
            outcome = error
        if isinstance(outcome, HerdsmanError):
            return protocol.FinishResult(
                key=ending.key, refused=str(outcome), stale=not isinstance(outcome, InvalidRequest)
            )
        return protocol.FinishResult(key=ending.key, status=JobStatus(outcome.value))

    return [[end(ending, report.worker_id) for ending in report.endings] for report in reports]


LONGEST_EXTERNAL_ID = 255
_PRINTABLE = re.compile(r"[ -~]+")


def mark_service(
    services: Services, key: ClaimKey, mark: protocol.ServiceMark, *, worker: WorkerId | None = None
) -> Mapping[str, str]:
    """Committed when this returns; what stands there now, as text, with empty text for what is not known."""
    external_id = mark.external_id
    if not 0 < len(external_id) <= LONGEST_EXTERNAL_ID:
        raise InvalidRequest(
            f"external_id has {len(external_id)} characters: it must have from 1 to {LONGEST_EXTERNAL_ID}"
        )
    if not _PRINTABLE.fullmatch(external_id):
        raise InvalidRequest(
            f"external_id is {external_id!r}: it must hold only printable ASCII characters; encode the service's own id"
        )

    def write(tx: Tx) -> Mapping[str, str]:
        if not attempts_sql.mark_service(tx, key, mark, worker):
            raise refusal(tx, key, "mark")
        known = redis_sql.look_up(tx, [key.job_id])[key.job_id].service
        return {name: known.get(name, "") for name in SERVICE}

    return services.database.transact(write)
