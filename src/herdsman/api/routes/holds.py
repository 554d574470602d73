"""What people stop for a while, and let go on."""

from fastapi import APIRouter

from herdsman.api.auth import Who
from herdsman.api.context import Context
from herdsman.api.routes.measured import Measured
from herdsman.control.commands import holds
from herdsman.control.commands import pools as commands
from herdsman.core.model import PoolId
from herdsman.wire.limits import DrainIn, HoldOut, HoldsOut, PauseIn, ResumedOut, ScopeIn
from herdsman.wire.pools import EvictIn, PoolOut

router = APIRouter(route_class=Measured, tags=["control"])


@router.post("/control/pause")
def pause(body: PauseIn, who: Who, context: Context) -> HoldOut:
    """No job of it is given out; workers finish what they hold and stay, and jobs are still taken in."""
    hold = holds.pause(context.services, body.meant(), why=body.why, duration=body.duration, who=who.who)
    context.announce_control("pause", who.who, hold.scope)
    return HoldOut.of(hold)


@router.post("/control/resume")
def resume(body: ScopeIn, who: Who, context: Context) -> ResumedOut:
    scope = body.meant()
    lifted = holds.resume(context.services, scope, who=who.who)
    if lifted:
        context.dispatcher.ring()
        context.announce_control("resume", who.who, scope)
    return ResumedOut(scope=scope, resumed=lifted)


@router.post("/control/drain")
def drain(body: DrainIn, who: Who, context: Context) -> HoldOut:
    """The whole cluster: nothing is given out, every worker finishes and leaves, and none are made until a resume."""
    hold = holds.drain(context.services, why=body.why, who=who.who)
    context.announce_control("drain", who.who)
    return HoldOut.of(hold)


@router.post("/control/evict_pool")
def evict(body: EvictIn, who: Who, context: Context) -> PoolOut:
    """At once: the workers of the pool are ended without waiting, and the jobs that they hold go back unharmed."""
    done = commands.evict_pool(context.services, PoolId(body.pool_id), who=who.who)
    return PoolOut.of(context.announce_pool("evicted", done))


@router.get("/control/holds")
def list_holds(_who: Who, context: Context) -> HoldsOut:
    """What is held now, and what goes on all the same."""
    return HoldsOut.of(holds.find_holds(context.services))
