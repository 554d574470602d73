"""Pools of warm workers that are asked for by name."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from herdsman.db.paging import LARGEST_PAGE
from herdsman.ids import PoolId
from herdsman.pools import commands
from herdsman.pools.wire import PoolIn, PoolOut, PoolsOut, ScaleIn, SwapIn
from herdsman.server.request import ApiRoute, Who
from herdsman.server.state import Server

router = APIRouter(route_class=ApiRoute, prefix="/workers/pool", tags=["pools"])
Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE)]


@router.post("", status_code=201, responses={200: {"model": PoolOut}})
def start_pool(wanted: PoolIn, response: Response, who: Who, server: Server) -> PoolOut:
    """Ask for a pool. 200 says that it was there already; what was asked for applies from now on."""
    done = commands.start_pool(server.services, wanted.new_pool(), who=who.who)
    if not done.created:
        response.status_code = 200
    response.headers["Location"] = f"/workers/pool/{done.status.pool.pool_id}"
    return PoolOut.of(server.announce_pool("created" if done.created else "changed", done.status))


@router.get("")
def list_pools(
    _who: Who, server: Server, after: Annotated[str | None, Query(max_length=128)] = None, limit: Limit = 50
) -> PoolsOut:
    """By name."""
    found = commands.list_pools(server.services, after=after, limit=limit)
    last = found[-1].pool.pool_id if len(found) == limit else None
    return PoolsOut(pools=tuple(PoolOut.of(each) for each in found), next=last)


@router.get("/{pool_id}")
def find_pool(pool_id: str, _who: Who, server: Server) -> PoolOut:
    return PoolOut.of(commands.find_pool(server.services, PoolId(pool_id)))


@router.delete("/{pool_id}")
def end_pool(pool_id: str, who: Who, server: Server, *, force: bool = False) -> PoolOut:
    """The same as a drain; with `force`, as an eviction."""
    end = evict_pool if force else drain_pool
    return end(pool_id, who, server)


@router.post("/{pool_id}/heartbeat")
def beat_pool(pool_id: str, _who: Who, server: Server) -> PoolOut:
    """It is still wanted: the time for which it is kept begins anew."""
    return PoolOut.of(commands.beat_pool(server.services, PoolId(pool_id)))


@router.post("/{pool_id}/drain")
def drain_pool(pool_id: str, who: Who, server: Server) -> PoolOut:
    """No new jobs; its workers finish their jobs and leave, and then it has stopped."""
    done = commands.drain_pool(server.services, PoolId(pool_id), who=who.who)
    return PoolOut.of(server.announce_pool("drained", done))


@router.post("/{pool_id}/evict")
def evict_pool(pool_id: str, who: Who, server: Server) -> PoolOut:
    """At once: its workers are ended, and their jobs go back to the queue unharmed."""
    done = commands.evict_pool(server.services, PoolId(pool_id), who=who.who)
    return PoolOut.of(server.announce_pool("evicted", done))


@router.post("/{pool_id}/swap")
def swap_pool(pool_id: str, wanted: SwapIn, who: Who, server: Server) -> PoolOut:
    """Serve another model, adapter or variant. Workers follow one after the other, and no job is lost."""
    done = commands.swap_pool(server.services, PoolId(pool_id), wanted.changed(), who=who.who)
    return PoolOut.of(server.announce_pool("swapped", done))


@router.post("/{pool_id}/scale")
def scale_pool(pool_id: str, wanted: ScaleIn, who: Who, server: Server) -> PoolOut:
    done = commands.scale_pool(server.services, PoolId(pool_id), wanted.desired_workers, who=who.who)
    return PoolOut.of(server.announce_pool("scaled", done))
