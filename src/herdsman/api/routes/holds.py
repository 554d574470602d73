"""What people stop for a while, and let go on."""

from fastapi import APIRouter

from herdsman.api.auth import Who
from herdsman.api.routes.measured import Measured
from herdsman.api.state import Server
from herdsman.control.commands import holds
from herdsman.control.commands import pools as commands
from herdsman.core.model import PoolId
from herdsman.wire.control import DrainIn, EvictIn, HoldOut, HoldsOut, PauseIn, ResumedOut, ScopeIn
from herdsman.wire.pools import PoolOut

router = APIRouter(route_class=Measured, tags=["control"])


@router.post("/control/pause")
def pause(body: PauseIn, who: Who, server: Server) -> HoldOut:
    """No job of it is given out; workers finish what they hold and stay, and jobs are still taken in."""
    hold = holds.pause(server.services, body.meant(), why=body.why, duration=body.duration, who=who.who)
    server.announce_control("pause", who.who, hold.scope)
    return HoldOut.of(hold)


@router.post("/control/resume")
def resume(body: ScopeIn, who: Who, server: Server) -> ResumedOut:
    scope = body.meant()
    lifted = holds.resume(server.services, scope, who=who.who)
    if lifted:
        server.dispatcher.ring()
        server.announce_control("resume", who.who, scope)
    return ResumedOut(scope=scope, resumed=lifted)


@router.post("/control/drain")
def drain(body: DrainIn, who: Who, server: Server) -> HoldOut:
    """The whole cluster: nothing is given out, every worker finishes and leaves, and none are made until a resume."""
    hold = holds.drain(server.services, why=body.why, who=who.who)
    server.announce_control("drain", who.who)
    return HoldOut.of(hold)


@router.post("/control/evict_pool")
def evict(body: EvictIn, who: Who, server: Server) -> PoolOut:
    """At once: the workers of the pool are ended without waiting, and the jobs that they hold go back unharmed."""
    done = commands.evict_pool(server.services, PoolId(body.pool_id), who=who.who)
    return PoolOut.of(server.announce_pool("evicted", done))


@router.get("/control/holds")
def list_holds(_who: Who, server: Server) -> HoldsOut:
    """What is held now, and what goes on all the same."""
    return HoldsOut.of(holds.find_holds(server.services))
