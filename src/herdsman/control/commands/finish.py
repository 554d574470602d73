"""How a worker ends its claim: with a result, with a failure, or by giving the job back."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum

from herdsman.control.commands.refusal import refusal
from herdsman.control.services import Services
from herdsman.core.body import clean, encode
from herdsman.core.ending import end_of
from herdsman.core.errors import HerdsmanError, InvalidRequest, StaleWrite
from herdsman.core.model import ClaimKey, Failure, WorkerId
from herdsman.core.retry import FailureClass
from herdsman.core.saved import check_saved
from herdsman.core.states import JobState
from herdsman.db.connection import Tx
from herdsman.store import claims
from herdsman.store.claims import Result

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
    one = checked(services, key, result, saved)
    outcome = services.database.transact(lambda tx: complete_all(tx, services, [one], who, worker))[key]
    if isinstance(outcome, HerdsmanError):
        raise outcome
    return outcome


def complete_jobs(
    services: Services,
    results: Mapping[ClaimKey, object],
    *,
    who: str = "worker",
    worker: WorkerId | None = None,
) -> dict[ClaimKey, Finish | HerdsmanError]:
    """Store many results at once; one that is refused does not hold up the others."""
    good: list[Result] = []
    refused: dict[ClaimKey, Finish | HerdsmanError] = {}
    for key, result in results.items():
        try:
            good.append(checked(services, key, result))
        except InvalidRequest as error:
            refused[key] = error
    if not good:
        return refused
    return refused | services.database.transact(lambda tx: complete_all(tx, services, good, who, worker))


def checked(services: Services, key: ClaimKey, result: object, saved: timedelta | None = None) -> Result:
    """As it can be stored; `InvalidRequest` for what cannot."""
    check_saved(saved)
    return Result(key, encode(result, what="result", limit=services.policy.max_result_bytes), saved)


def fail_job(
    services: Services,
    key: ClaimKey,
    failure: Failure,
    *,
    who: str = "worker",
    worker: WorkerId | None = None,
) -> JobState:
    """What the job became: `failed` until its retry, `dead_letter`, `pending`, or `cancelled`."""
    return services.database.transact(lambda tx: end_claim(tx, services, key, failure, who, worker))


def release_job(
    services: Services, key: ClaimKey, why: str, *, who: str = "worker", worker: WorkerId | None = None
) -> JobState:
    """Give the job back unharmed: it keeps its place, and the attempt does not count against it."""
    failure = Failure(kind=FailureClass.INTERRUPTED, error=why)
    return fail_job(services, key, failure, who=who, worker=worker)


def complete_all(
    tx: Tx,
    services: Services,
    results: Sequence[Result],
    who: str,
    worker: WorkerId | None = None,
) -> dict[ClaimKey, Finish | HerdsmanError]:
    """Results that have been checked, within a transaction that does more."""
    if claims.complete(tx, results, who, worker) == len(results):
        return dict.fromkeys((each.key for each in results), Finish.DONE)
    return {each.key: _look(tx, services, each.key, who, worker) for each in results}


def _look(
    tx: Tx, services: Services, key: ClaimKey, who: str, worker: WorkerId | None
) -> Finish | HerdsmanError:
    now = claims.standing(tx, key.job_id)
    if now is not None and now.token == key.token and worker in (None, now.last_worker_id):
        if now.state is JobState.DONE:
            return Finish.DONE
        if now.cancel_requested and claims.holding(tx, key, worker):
            failure = Failure(kind=FailureClass.INTERRUPTED, error="cancelled; the result came too late")
            end_claim(tx, services, key, failure, who, worker)
            return Finish.CANCELLED
    return refusal(tx, key, "complete")


def end_claim(
    tx: Tx,
    services: Services,
    key: ClaimKey,
    failure: Failure,
    who: str,
    worker: WorkerId | None = None,
) -> JobState:
    """The end of a claim without a result, within a transaction that does more."""
    held = claims.holding(tx, key, worker)
    if held is None:
        raise refusal(tx, key, "end")
    short = Failure(kind=failure.kind, error=clean(failure.error, LONGEST_ERROR))
    ending = end_of(held, short, tx.now(), services.policy)
    if not claims.end(tx, key, who, ending):
        raise StaleWrite(f"job {key.job_id!r} moved on while its claim ended")
    return ending.state
