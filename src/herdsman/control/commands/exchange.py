"""The end of a worker's jobs and the next ones, in one word and one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from herdsman.control.commands.claim import check_ask, give
from herdsman.control.commands.finish import checked, complete_all, end_claim
from herdsman.control.commands.keep import check_count
from herdsman.control.services import Services
from herdsman.core.control_policy import ControlPolicy
from herdsman.core.errors import HerdsmanError, InvalidRequest, NotFound, StaleWrite
from herdsman.core.model import ClaimKey, Failure, WorkerId
from herdsman.core.retry import FailureClass
from herdsman.core.states import JobState
from herdsman.core.work import Ask, Done, Ending, Exchange, Failed, GivenBack, Told
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.store import workers
from herdsman.store.claims import Result


def finish_jobs(
    services: Services, worker_id: WorkerId, endings: Sequence[Ending], then: Ask | None = None
) -> Exchange:
    """One ending that is refused does not hold up the others; the next jobs come with the answer."""
    check_count(endings)
    if then is not None:
        check_ask(then)
        services.types.note(services.database, {worker_id: then})
    results, refused = _checked(services, endings)
    reports = _Reports(worker_id, endings, results, refused)
    rules = services.rules()
    try:
        return services.database.transact(lambda tx: _exchange(tx, services, reports, then, rules))
    except Duplicate:  # a second request of this worker got a job in this very moment: it has its work
        return services.database.transact(lambda tx: _exchange(tx, services, reports, None, rules))


@dataclass(frozen=True, slots=True)
class _Reports:
    worker_id: WorkerId
    endings: Sequence[Ending]
    results: Sequence[Result]
    refused: Mapping[ClaimKey, Told]


def _checked(services: Services, endings: Sequence[Ending]) -> tuple[list[Result], dict[ClaimKey, Told]]:
    """Results as text, and those that cannot be stored: another word about these jobs may follow."""
    good: dict[ClaimKey, Result] = {}
    refused: dict[ClaimKey, Told] = {}
    for ending in endings:
        if isinstance(ending, Done):
            try:
                good[ending.key] = checked(services, ending.key, ending.result, ending.saved)
            except InvalidRequest as error:
                refused[ending.key] = Told(key=ending.key, refused=str(error))
    return list(good.values()), refused


def _exchange(
    tx: Tx, services: Services, reports: _Reports, then: Ask | None, rules: ControlPolicy
) -> Exchange:
    worker_id, endings = reports.worker_id, reports.endings
    who = f"worker:{worker_id}"
    if then is not None:
        workers.lock(tx, worker_id)  # before its jobs, as a beat does: two that lock in turn cannot get stuck
    told = dict(reports.refused)
    if reports.results:
        for key, outcome in complete_all(tx, services, reports.results, who, worker_id).items():
            stale = isinstance(outcome, HerdsmanError)
            told[key] = _stale(key, outcome) if stale else Told(key=key, state=JobState(outcome.value))
    for ending in endings:
        if isinstance(ending, Failed | GivenBack):
            told[ending.key] = _end(tx, services, ending, who, worker_id)
    claims = give(tx, services, {worker_id: then}, rules) if then is not None else []
    return Exchange(told=[told[ending.key] for ending in endings], claims=claims)


def _end(tx: Tx, services: Services, ending: Failed | GivenBack, who: str, worker_id: WorkerId) -> Told:
    failure = (
        ending.failure
        if isinstance(ending, Failed)
        else Failure(kind=FailureClass.INTERRUPTED, error=ending.why)
    )
    try:
        state = end_claim(tx, services, ending.key, failure, who, worker_id)
    except (StaleWrite, NotFound) as error:
        return _stale(ending.key, error)
    return Told(key=ending.key, state=state)


def _stale(key: ClaimKey, error: HerdsmanError) -> Told:
    return Told(key=key, refused=str(error), stale=True)
