"""Give waiting workers the next jobs. One transaction serves all that ask at the same time."""

from collections import defaultdict
from collections.abc import Sequence

from herdsman.control.services import Services
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import Claim, PoolId, WorkerId
from herdsman.core.request import check_name
from herdsman.store import claiming
from herdsman.store.database import Tx
from herdsman.store.faults import Duplicate
from herdsman.store.hot import MOST_LISTED

_TRIES = 5


def claim_job(services: Services, worker_id: WorkerId, types: Sequence[str] = ()) -> Claim | None:
    """The next job of the worker's pool; nothing when it is not active or already has one."""
    claims = claim_jobs(services, [worker_id], types)
    return claims[0] if claims else None


def claim_jobs(services: Services, worker_ids: Sequence[WorkerId], types: Sequence[str] = ()) -> list[Claim]:
    """One job for each worker that is active and free, as far as there are jobs in its pool.

    `types` are those that these workers can run: a job of a type that nobody knows waits, and is not failed (J1).
    """
    if len(worker_ids) > MOST_LISTED:
        raise InvalidRequest(f"{len(worker_ids)} workers asked at once, the limit is {MOST_LISTED}")
    if not worker_ids:
        return []
    for worker_id in worker_ids:
        check_name("worker_id", worker_id, 128)
    if len(types) > MOST_LISTED:
        raise InvalidRequest(f"{len(types)} types were named, the limit is {MOST_LISTED}")
    for kind in types:
        check_name("type", kind, 64)
    for _ in range(_TRIES):
        try:
            return services.database.transact(lambda tx: _claim(tx, services, worker_ids, types))
        except Duplicate:  # a second request of one of these workers got its job in this very moment
            continue
    return []


def _claim(tx: Tx, services: Services, worker_ids: Sequence[WorkerId], types: Sequence[str]) -> list[Claim]:
    free: defaultdict[PoolId, list[WorkerId]] = defaultdict(list)
    for worker_id, pool in claiming.free_workers(tx, worker_ids):
        free[pool].append(worker_id)
    ttl = services.policy.claim_ttl
    return [claim for pool in sorted(free) for claim in claiming.take(tx, pool, free[pool], ttl, types)]
