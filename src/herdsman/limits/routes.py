"""What limits the queue: the policy, and what people pause for a while."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from herdsman.db.paging import LARGEST_PAGE
from herdsman.ids import PoolId
from herdsman.limits import commands, wire
from herdsman.pools import commands as pools_commands
from herdsman.pools.wire import EvictIn, PoolOut
from herdsman.server.request import ApiRoute, Who
from herdsman.server.state import Server
from herdsman.wire import span

router = APIRouter(route_class=ApiRoute, tags=["control"])
_LAST = 2_147_483_647


@router.get("/control/policy")
def find_policy(server: Server) -> wire.PolicyOut:
    """The one in force."""
    return wire.PolicyOut.of(commands.find_policy(server.services))


@router.put("/control/policy")
def set_policy(body: wire.PolicyIn, who: Who, server: Server) -> wire.EditionOut:
    """All of it, with what that changes. It is in force here at once, and on every other replica within a second."""
    return commands.set_policy(
        server.services, body.policy, note=body.note, base_version=body.base_version, who=who.who
    )


@router.get("/control/policy/history")
def policy_history(
    server: Server,
    after: Annotated[int | None, Query(ge=0, le=_LAST)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 50,
) -> wire.HistoryOut:
    """Newest first, each with what it changed."""
    return commands.policy_history(server.services, after=after, limit=limit)


@router.get("/control/policy/{version}")
def find_policy_version(version: Annotated[int, Path(ge=0, le=_LAST)], server: Server) -> wire.PolicyOut:
    return wire.PolicyOut.of(commands.find_policy(server.services, version))


@router.post("/control/pause")
def pause(body: wire.PauseIn, who: Who, server: Server) -> wire.PauseOut:
    """None of its jobs is claimed; workers finish their jobs and stay, and jobs are still taken in."""
    duration = span(body.seconds)
    paused = commands.pause(server.services, body.meant(), reason=body.reason, duration=duration, who=who.who)
    server.announce_control("pause", who.who, paused.scope)
    return wire.PauseOut.of(paused)


@router.post("/control/resume")
def resume(body: wire.ScopeIn, who: Who, server: Server) -> wire.ResumedOut:
    scope = body.meant()
    lifted = commands.resume(server.services, scope, who=who.who)
    if lifted:
        server.writer.ring()
        server.announce_control("resume", who.who, scope)
    return wire.ResumedOut(scope=scope, resumed=lifted)


@router.post("/control/drain")
def drain(body: wire.DrainIn, who: Who, server: Server) -> wire.PauseOut:
    """The whole cluster: no job is claimed, every worker finishes and leaves, and none are added until a resume."""
    paused = commands.drain(server.services, reason=body.reason, who=who.who)
    server.announce_control("drain", who.who)
    return wire.PauseOut.of(paused)


@router.post("/control/evict_pool")
def evict(body: EvictIn, who: Who, server: Server) -> PoolOut:
    """At once: the workers of the pool are ended without waiting, and the jobs that they hold go back unharmed."""
    done = pools_commands.evict_pool(server.services, PoolId(body.pool_id), who=who.who)
    return PoolOut.of(server.announce_pool("evicted", done))


@router.get("/control/holds")
def list_holds(_who: Who, server: Server) -> wire.PausesOut:
    """What is paused now, and what still runs."""
    return commands.find_pauses(server.services)
