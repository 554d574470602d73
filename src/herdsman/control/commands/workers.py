"""Workers come and go; only an active one is given jobs."""

from collections.abc import Mapping

from herdsman.control.services import Services
from herdsman.core.body import clean, encode
from herdsman.core.errors import Conflict, InvalidRequest, NotFound, StaleWrite
from herdsman.core.model import DEFAULT_POOL, PoolId, WorkerId
from herdsman.core.reasons import Reason
from herdsman.core.request import check_name
from herdsman.core.states import WorkerState
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.store import workers

LONGEST_TYPE = 128
MOST_METADATA = 65_536


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
    if instance_type is not None and len(clean(instance_type, LONGEST_TYPE + 1)) > LONGEST_TYPE:
        raise InvalidRequest(f"instance_type has more than {LONGEST_TYPE} characters")
    kind = None if instance_type is None else clean(instance_type, LONGEST_TYPE)
    details = metadata or {}
    encode(dict(details), what="metadata", limit=MOST_METADATA)
    try:
        services.database.transact(
            lambda tx: workers.register(tx, worker_id, pool=pool, instance_type=kind, metadata=details)
        )
    except Duplicate as error:
        raise Conflict(f"there is a worker {worker_id!r} already") from error


def move_worker(
    services: Services, worker_id: WorkerId, to: WorkerState, reason: Reason, *, who: str = "leader"
) -> None:
    services.database.transact(lambda tx: workers.move(tx, worker_id, to, reason, who))


def drain_worker(services: Services, worker_id: WorkerId, *, who: str = "admin") -> tuple[WorkerState, bool]:
    """It takes no new job, finishes what it holds and leaves; its state from here on, and whether that is news."""
    return services.database.transact(lambda tx: _drain(tx, worker_id, who))


def _drain(tx: Tx, worker_id: WorkerId, who: str) -> tuple[WorkerState, bool]:
    state = workers.get(tx, worker_id).state
    if state is WorkerState.SPAWNING:
        raise Conflict(f"worker {worker_id!r} is starting: drain it when it is active")
    if state is not WorkerState.ACTIVE:
        return state, False
    workers.move(tx, worker_id, WorkerState.TERMINATING, Reason.DRAINED, who)
    return WorkerState.TERMINATING, True


def leave(services: Services, worker_id: WorkerId) -> None:
    """An active worker drains. In any other state the control loop knows, or will see the silence."""
    try:
        move_worker(services, worker_id, WorkerState.TERMINATING, Reason.DRAINED, who=f"worker:{worker_id}")
    except (StaleWrite, NotFound):
        return
