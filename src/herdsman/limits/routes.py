"""What limits the queue: the policy, and what people pause for a while."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from herdsman.db.paging import LARGEST_PAGE
from herdsman.ids import PoolId
from herdsman.limits import commands
from herdsman.limits.wire import (
    DrainIn,
    EditionOut,
    HistoryOut,
    HoldOut,
    HoldsOut,
    PauseIn,
    PolicyIn,
    PolicyOut,
    ResumedOut,
    ScopeIn,
)
from herdsman.pools import commands as pools_commands
from herdsman.pools.wire import EvictIn, PoolOut
from herdsman.server.request import ApiRoute, Who
from herdsman.server.state import Server

router = APIRouter(route_class=ApiRoute, tags=["control"])
_LAST = 2_147_483_647


@router.get("/control/policy")
def find_policy(server: Server) -> PolicyOut:
    """The one that holds now."""
    return commands.find_policy(server.services).shown()


@router.put("/control/policy")
def set_policy(body: PolicyIn, who: Who, server: Server) -> EditionOut:
    """All of it, with what that changes. It holds here at once, and on every other replica within a second."""
    edition = commands.set_policy(
        server.services, body.policy, note=body.note, base_version=body.base_version, who=who.who
    )
    return edition.compared()


@router.get("/control/policy/history")
def policy_history(
    server: Server,
    after: Annotated[int | None, Query(ge=0, le=_LAST)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 50,
) -> HistoryOut:
    """Newest first, each with what it changed."""
    return commands.policy_history(server.services, after=after, limit=limit).shown()


@router.get("/control/policy/{version}")
def find_policy_version(version: Annotated[int, Path(ge=0, le=_LAST)], server: Server) -> PolicyOut:
    return commands.find_policy(server.services, version).shown()


@router.post("/control/pause")
def pause(body: PauseIn, who: Who, server: Server) -> HoldOut:
    """No job of it is given out; workers finish what they hold and stay, and jobs are still taken in."""
    hold = commands.pause(server.services, body.meant(), why=body.why, duration=body.duration, who=who.who)
    server.announce_control("pause", who.who, hold.scope)
    return HoldOut.of(hold)


@router.post("/control/resume")
def resume(body: ScopeIn, who: Who, server: Server) -> ResumedOut:
    scope = body.meant()
    lifted = commands.resume(server.services, scope, who=who.who)
    if lifted:
        server.dispatcher.ring()
        server.announce_control("resume", who.who, scope)
    return ResumedOut(scope=scope, resumed=lifted)


@router.post("/control/drain")
def drain(body: DrainIn, who: Who, server: Server) -> HoldOut:
    """The whole cluster: nothing is given out, every worker finishes and leaves, and none are made until a resume."""
    hold = commands.drain(server.services, why=body.why, who=who.who)
    server.announce_control("drain", who.who)
    return HoldOut.of(hold)


@router.post("/control/evict_pool")
def evict(body: EvictIn, who: Who, server: Server) -> PoolOut:
    """At once: the workers of the pool are ended without waiting, and the jobs that they hold go back unharmed."""
    done = pools_commands.evict_pool(server.services, PoolId(body.pool_id), who=who.who)
    return PoolOut.of(server.announce_pool("evicted", done))


@router.get("/control/holds")
def list_holds(_who: Who, server: Server) -> HoldsOut:
    """What is held now, and what goes on all the same."""
    return HoldsOut.of(commands.find_holds(server.services))
