"""Give waiting workers the next jobs. One transaction serves all that ask at the same time."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from herdsman.control.choice import Choice
from herdsman.control.services import Services
from herdsman.core.control_policy import ControlPolicy
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import Claim, ClaimKey, PoolId, WorkerId
from herdsman.core.request import check_model, check_name
from herdsman.core.work import MOST_AT_ONCE, Ask
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.db.statements import MOST_LISTED
from herdsman.store import claiming, claims
from herdsman.store.claiming import Free

_TRIES = 5


def claim_job(services: Services, worker_id: WorkerId, types: Sequence[str] = ()) -> Claim | None:
    """The next job of the worker's pool; nothing when it is not active or already has one."""
    found = claim_jobs(services, [worker_id], types)
    return found[0] if found else None


def claim_jobs(services: Services, worker_ids: Sequence[WorkerId], types: Sequence[str] = ()) -> list[Claim]:
    """One job for each worker that is active and free, as far as there are jobs in its pool."""
    return claim_for(services, {worker_id: Ask(types=tuple(types)) for worker_id in worker_ids})


def claim_for(services: Services, asks: Mapping[WorkerId, Ask]) -> list[Claim]:
    """What each worker asks for, as far as it is there. A job of a type that nobody knows waits (J1)."""
    if len(asks) > MOST_LISTED:
        raise InvalidRequest(f"{len(asks)} workers asked at once, the limit is {MOST_LISTED}")
    for worker_id, ask in asks.items():
        check_name("worker_id", worker_id, 128)
        check_ask(ask)
    if not asks:
        return []
    services.types.note(services.database, asks)
    rules = services.rules()
    for _ in range(_TRIES):
        try:
            return services.database.transact(lambda tx: give(tx, services, asks, rules))
        except Duplicate:  # a second request of one of these workers got its job in this very moment
            continue
    return []


def held_claims(services: Services, worker_id: WorkerId, incarnation: str | None = None) -> list[ClaimKey]:
    """What this worker holds, be it that the answer with a claim never reached it.

    A second process under the same name must not take what the first is at work on for unheard of, so what another
    incarnation has begun is left out.
    """
    check_name("worker_id", worker_id, 128)
    return services.database.read(lambda tx: claiming.held_keys(tx, worker_id, incarnation))


def check_ask(ask: Ask) -> None:
    if len(ask.types) > MOST_LISTED:
        raise InvalidRequest(f"{len(ask.types)} types were named, the limit is {MOST_LISTED}")
    for kind in ask.types:
        check_name("type", kind, 64)
    if ask.beside and len(ask.types) != 1:
        raise InvalidRequest(f"{len(ask.types)} types were named: a batch is filled up with jobs of one")
    for model in ask.models:
        check_model("model", model)
    for kind, most in ask.most.items():
        check_name("type", kind, 64)
        if not 1 <= most + ask.beside <= MOST_AT_ONCE:
            raise InvalidRequest(f"most of {kind} is {most}: it must be from 1 to {MOST_AT_ONCE}")


def give(tx: Tx, services: Services, asks: Mapping[WorkerId, Ask], rules: ControlPolicy) -> list[Claim]:
    """The same, within a transaction that does more."""
    lost = [worker_id for worker_id, ask in asks.items() if ask.resume]
    given = [each for each in claiming.held(tx, lost) if _runs(asks[each.worker_id], each)] if lost else []
    empty = [worker_id for worker_id, ask in asks.items() if not ask.beside]
    free = claiming.free_workers(tx, empty) if empty else []
    fuller = [worker_id for worker_id, ask in asks.items() if ask.beside]
    active = [found for worker_id in fuller if (found := claiming.active_worker(tx, worker_id))]
    choice = Choice.of(tx, services, rules, [*free, *active])
    for (pool, types), workers in sorted(_lines(free, asks).items()):
        given += _take(choice, pool, types, {worker: asks[worker] for worker in workers})
    for each in active:
        given += _fill_up(choice, each, asks[each.worker_id])
    return given


def _runs(ask: Ask, claim: Claim) -> bool:
    """A worker that came back with fewer types is not handed what it cannot run: that claim runs out."""
    return not ask.types or claim.type in ask.types


def _lines(
    free: Sequence[Free], asks: Mapping[WorkerId, Ask]
) -> Mapping[tuple[PoolId, tuple[str, ...]], list[WorkerId]]:
    """Those who would take the same jobs."""
    lines: defaultdict[tuple[PoolId, tuple[str, ...]], list[WorkerId]] = defaultdict(list)
    for each in free:
        lines[each.pool, asks[each.worker_id].types].append(each.worker_id)
    return lines


def _take(choice: Choice, pool: PoolId, types: tuple[str, ...], asks: Mapping[WorkerId, Ask]) -> list[Claim]:
    taken = choice.first(pool, types, {worker: ask.models for worker, ask in asks.items()})
    for first in tuple(taken):
        ask = asks[first.worker_id]
        slots = range(1, ask.most.get(first.type, 1))
        taken += choice.more(pool, first.worker_id, slots, first.type, ask.models)
    _begin(choice.tx, [claim for claim in taken if asks[claim.worker_id].begin], asks)
    return taken


def _fill_up(choice: Choice, worker: Free, ask: Ask) -> list[Claim]:
    """The slots behind those that it says to hold; one that is taken after all undoes everything (`Duplicate`)."""
    kind = ask.types[0]
    slots = range(ask.beside, ask.beside + ask.most.get(kind, 1))
    taken = choice.more(worker.pool, worker.worker_id, slots, kind, ask.models)
    _begin(choice.tx, taken if ask.begin else [], {worker.worker_id: ask})
    return taken


def _begin(tx: Tx, taken: Sequence[Claim], asks: Mapping[WorkerId, Ask]) -> None:
    now = tx.now()
    by_worker: defaultdict[WorkerId, list[Claim]] = defaultdict(list)
    for claim in taken:
        by_worker[claim.worker_id].append(claim)
    for worker, mine in by_worker.items():
        due = [(claim.key, now + claim.timeout if claim.timeout else None) for claim in mine]
        claims.start(tx, due, f"worker:{worker}", worker, asks[worker].incarnation)
