"""Workers: they register, beat and leave; people look at them."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from herdsman.control import commands
from herdsman.control.commands.tokens import admit_worker, renew_worker_token
from herdsman.control.commands.workers import drain_worker as drain
from herdsman.control.services import Services
from herdsman.core.access import Caller, Role
from herdsman.core.errors import Conflict
from herdsman.core.model import PoolId, WorkerId
from herdsman.core.states import WorkerState
from herdsman.db.paging import LARGEST_PAGE
from herdsman.server.request import ApiRoute, Who, own_worker
from herdsman.server.state import Server, ServerState
from herdsman.store import workers
from herdsman.wire.fleet import DrainedOut, OrdersOut, PulseIn, WorkerOut, WorkersOut
from herdsman.wire.ids import new_worker_id
from herdsman.wire.jobs import HeldClaimOut, HeldClaimsOut, RegisteredOut, RegisterIn

router = APIRouter(route_class=ApiRoute, tags=["workers"])

BEATS_PER_CLAIM = 6
"""So many beats may be lost before a claim is."""


@router.get("/workers")
def list_workers(
    _who: Who,
    server: Server,
    status: Annotated[list[WorkerState] | None, Query(max_length=20)] = None,
    pool: Annotated[str | None, Query(max_length=128)] = None,
    after: Annotated[str | None, Query(max_length=512)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 50,
) -> WorkersOut:
    """Newest first. `status` may be repeated."""
    states, named = tuple(status or ()), None if pool is None else PoolId(pool)
    page = server.services.database.read(
        lambda tx: workers.page(tx, states=states, pool=named, after=after, limit=limit)
    )
    return WorkersOut(workers=tuple(WorkerOut.of(each) for each in page.workers), next=page.next)


@router.get("/workers/{worker_id}")
def find_worker(worker_id: str, _who: Who, server: Server) -> WorkerOut:
    return WorkerOut.of(server.services.database.read(lambda tx: workers.get(tx, WorkerId(worker_id))))


@router.post("/workers/register", status_code=201)
def register(request: Request, wanted: RegisterIn, who: Who, server: Server) -> RegisteredOut:
    """The token of a worker: for the machine that was started as one, or for one that a person adds by hand."""
    named = wanted.worker_id or who.worker_id or new_worker_id()
    worker_id = WorkerId(named)
    by_hand = who.role in (Role.ADMIN, Role.OPERATOR, Role.ENROLLER)
    new = by_hand and _enlist(server.services, worker_id, wanted)
    issued = admit_worker(server.services, server.keyring, who, worker_id, wanted.incarnation, new=new)
    program, _, version = request.headers.get("user-agent", "").partition("/")
    if program == "herdsman":
        server.services.database.transact(lambda tx: workers.note_version(tx, worker_id, version))
    assert issued.token.expires_at is not None
    ttl = server.services.policy.claim_ttl.total_seconds()
    return RegisteredOut(
        worker_id=worker_id,
        token=issued.secret,
        expires_at=issued.token.expires_at,
        heartbeat_seconds=ttl / BEATS_PER_CLAIM,
        claim_ttl_seconds=ttl,
    )


@router.post("/workers/{worker_id}/heartbeat")
def heartbeat(worker_id: str, beat: PulseIn, who: Who, server: Server) -> OrdersOut:
    """Keeps the worker and its claims alive together, and brings back what it must do."""
    me = own_worker(who, worker_id)
    orders = OrdersOut.of(commands.take_pulse(server.services, me, beat.pulse()))
    if beat.report is not None:
        server.leases.ring()
    return _renewed(orders, who, server)


@router.get("/workers/{worker_id}/claims")
def held(worker_id: str, who: Who, server: Server) -> HeldClaimsOut:
    """What the worker holds. It asks after an answer was lost, and gives back what it does not work on."""
    keys = commands.held_claims(server.services, own_worker(who, worker_id), who.incarnation)
    return HeldClaimsOut(claims=tuple(HeldClaimOut(job_id=key.job_id, token=key.token) for key in keys))


@router.post("/workers/{worker_id}/leave", status_code=204)
def leave(worker_id: str, who: Who, server: Server) -> None:
    commands.leave(server.services, own_worker(who, worker_id))


@router.post("/workers/{worker_id}/drain")
def drain_worker(worker_id: str, who: Who, server: Server) -> DrainedOut:
    """It takes no new job, finishes what it holds and leaves. One that is leaving already is left alone."""
    state, news = drain(server.services, WorkerId(worker_id), who=who.who)
    return DrainedOut(worker_id=worker_id, status=state, already=not news)


def _enlist(services: Services, worker_id: WorkerId, wanted: RegisterIn) -> bool:
    """Whether there was no such worker before."""
    try:
        commands.register_worker(
            services, worker_id, pool=PoolId(wanted.pool), instance_type=wanted.instance_type
        )
    except Conflict:  # sent again, or a worker that the control loop has made
        return False
    return True


def _renewed(orders: OrdersOut, who: Caller, server: ServerState) -> OrdersOut:
    issued = renew_worker_token(server.services, server.keyring, who)
    if issued is None:
        return orders
    return orders.model_copy(update={"token": issued.secret, "token_expires_at": issued.token.expires_at})
