"""Leases of GPUs, for processes that Herdsman did not start, and the inventory of GPUs."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from herdsman.db.paging import LARGEST_PAGE
from herdsman.jobs.routes import gone
from herdsman.leases import commands, wire
from herdsman.leases.rules import Refusal, check_wait
from herdsman.server.access import MATRIX
from herdsman.server.request import ApiRoute, Who
from herdsman.server.state import Server

router = APIRouter(route_class=ApiRoute, tags=["leases"])


@router.post(
    "/leases",
    status_code=201,
    responses={
        200: {"model": wire.LeaseAnswer, "description": "Nothing is free: why, and when to ask again."},
        410: {"description": "The lease of this token has ended."},
    },
)
async def lease(
    wanted: wire.LeaseIn, request: Request, response: Response, who: Who, server: Server
) -> wire.LeaseAnswer:
    """A part of a GPU, or all of it, until it is released or no heartbeat comes in time."""
    policy = server.services.leasing
    agent = commands.agent_of(wanted.agent, who.agent, who.only_agent)
    asked, wait = wanted.request(agent, policy), check_wait(wanted.wait_seconds)
    outcome = await server.leases.ask(asked, who.who, wait, lambda: gone(request))
    if isinstance(outcome, Refusal):
        response.status_code = 200
        response.headers["retry-after"] = str(max(1, round(outcome.retry_after.total_seconds())))
        return wire.LeaseAnswer.refused(outcome)
    return wire.LeaseAnswer.of(outcome, policy)


@router.get("/leases")
def list_leases(
    who: Who,
    server: Server,
    *,
    agent: Annotated[str | None, Query(max_length=255)] = None,
    ended: Annotated[bool, Query(alias="all", description="Those that have ended, too.")] = False,
    after: Annotated[str | None, Query(max_length=512)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 50,
) -> wire.LeasesOut:
    """Newest first. A submitter sees its own agent's (X2); the tokens are only for who may end a lease with them."""
    page = commands.list_leases(server.services, agent=who.only_agent or agent, ended=ended, after=after, limit=limit)
    shown = [wire.LeaseOut.of(each) for each in page.leases]
    if who.role not in MATRIX["POST", "/leases/{token}/release"]:
        shown = [each.without_token() for each in shown]
    return wire.LeasesOut(leases=tuple(shown), next=page.next)


_GONE = {410: {"description": "The lease has ended; it is never given back to its holder."}}


@router.post("/leases/{token}/heartbeat", responses={**_GONE})
def heartbeat_lease(token: str, who: Who, server: Server, _beat: wire.BeatIn | None = None) -> wire.KeptOut:
    """Moves the end of the lease. 410 once it has ended: stop using the GPU."""
    return commands.keep_lease(server.services, token, only_agent=who.only_agent)


@router.post("/leases/{token}/release")
def release_lease(token: str, who: Who, server: Server) -> wire.LeaseOut:
    """From any replica, and as often as you like; one that has ended stays as it ended."""
    ended = commands.release_lease(server.services, token, who=who.who, only_agent=who.only_agent)
    server.leases.ring()
    return wire.LeaseOut.of(ended)


@router.post("/leases/{token}/revoke")
def revoke_lease(token: str, who: Who, server: Server) -> wire.LeaseOut:
    """Takes a lease back; its holder learns of it with the next heartbeat."""
    ended = commands.revoke_lease(server.services, token, who=who.who)
    server.leases.ring()
    return wire.LeaseOut.of(ended)


@router.get("/gpus")
def list_gpus(
    _who: Who,
    server: Server,
    after: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
) -> wire.GpusOut:
    """By their UUIDs, each with what was measured on it last and what is leased of it."""
    page = commands.list_gpus(server.services, after=after, limit=limit)
    return wire.GpusOut(gpus=tuple(wire.GpuOut.of(gpu, leased) for gpu, leased in page.gpus), next=page.next)


@router.post("/nodes/{node_id}/gpus")
def report_gpus(node_id: str, reported: wire.GpusIn, _who: Who, server: Server) -> wire.TakenOut:
    """What was measured on a machine that runs no worker; send it every few seconds."""
    age = timedelta(seconds=reported.age_seconds)
    taken = commands.report_gpus(server.services, node_id, reported.devices(), age)
    server.leases.ring()
    return wire.TakenOut(taken=tuple(taken))


@router.post("/gpus/{uuid}/clear")
def clear_gpu(uuid: str, who: Who, server: Server) -> wire.GpuOut:
    """Lifts a quarantine: what is in use on the GPU now counts as outsiders' from here on."""
    cleared = commands.clear_gpu(server.services, uuid, who=who.who)
    server.leases.ring()
    return wire.GpuOut.of(cleared, 0)
