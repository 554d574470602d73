"""Workers come and go; only an active one is given jobs."""

from collections.abc import Mapping

from herdsman.control.services import Services
from herdsman.core.errors import Conflict
from herdsman.core.model import DEFAULT_POOL, PoolId, WorkerId
from herdsman.core.reasons import Reason
from herdsman.core.request import check_name
from herdsman.core.states import WorkerState
from herdsman.store import workers
from herdsman.store.faults import Duplicate


def register_worker(
    services: Services,
    worker_id: WorkerId,
    *,
    pool: PoolId = DEFAULT_POOL,
    instance_type: str | None = None,
    metadata: Mapping[str, object] | None = None,
) -> None:
    check_name("worker_id", worker_id, 128)
    check_name("pool", pool, 128)
    details = metadata or {}
    try:
        services.database.transact(
            lambda tx: workers.register(
                tx, worker_id, pool=pool, instance_type=instance_type, metadata=details
            )
        )
    except Duplicate as error:
        raise Conflict(f"there is a worker {worker_id!r} already") from error


def move_worker(
    services: Services, worker_id: WorkerId, to: WorkerState, reason: Reason, *, who: str = "leader"
) -> None:
    services.database.transact(lambda tx: workers.move(tx, worker_id, to, reason, who))
