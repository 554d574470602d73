"""Leases of GPUs, for processes that Herdsman did not start."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from herdsman.api.access import MATRIX
from herdsman.api.auth import Who
from herdsman.api.context import Context
from herdsman.api.routes.desk import AtDesk
from herdsman.api.routes.measured import Measured
from herdsman.api.routes.work import gone
from herdsman.control.commands import leases
from herdsman.core.lease_request import check_wait
from herdsman.core.leasing import Refusal
from herdsman.db.paging import LARGEST_PAGE
from herdsman.wire.leases import BeatIn, KeptOut, LeaseAnswer, LeaseIn, LeaseOut, LeasesOut

router = APIRouter(route_class=Measured, tags=["leases"])


@router.post(
    "/leases",
    status_code=201,
    responses={
        200: {"model": LeaseAnswer, "description": "Nothing is free: why, and when to ask again."},
        410: {"description": "The lease of this token has ended."},
    },
)
async def lease(
    wanted: LeaseIn, request: Request, response: Response, who: Who, context: Context, desk: AtDesk
) -> LeaseAnswer:
    """A part of a GPU, or all of it, until it is released or no heartbeat comes in time."""
    policy = context.services.leasing
    agent = leases.agent_of(wanted.agent, who.agent, who.only_agent)
    asked, wait = wanted.request(agent, policy), check_wait(wanted.wait_seconds)
    outcome = await desk.leases.ask(asked, who.who, wait, lambda: gone(request))
    if isinstance(outcome, Refusal):
        response.status_code = 200
        response.headers["retry-after"] = str(max(1, round(outcome.retry_after.total_seconds())))
        return LeaseAnswer.refused(outcome)
    return LeaseAnswer.of(outcome, policy)


@router.get("/leases")
def list_leases(
    who: Who,
    context: Context,
    *,
    agent: Annotated[str | None, Query(max_length=255)] = None,
    ended: Annotated[bool, Query(alias="all", description="Those that have ended, too.")] = False,
    after: Annotated[str | None, Query(max_length=512)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 50,
) -> LeasesOut:
    """Newest first. A submitter sees its own agent's (X2); the tokens are only for who may end a lease with them."""
    page = leases.list_leases(
        context.services, agent=who.only_agent or agent, ended=ended, after=after, limit=limit
    )
    shown = [LeaseOut.of(each) for each in page.leases]
    if who.role not in MATRIX["POST", "/leases/{token}/release"]:
        shown = [each.without_token() for each in shown]
    return LeasesOut(leases=tuple(shown), next=page.next)


_GONE = {410: {"description": "The lease has ended; it is never given back to its holder."}}


@router.post("/leases/{token}/heartbeat", responses={**_GONE})
def heartbeat_lease(token: str, who: Who, context: Context, _beat: BeatIn | None = None) -> KeptOut:
    """Moves the end of the lease. 410 once it has ended: stop using the GPU."""
    kept = leases.keep_lease(context.services, token, only_agent=who.only_agent)
    return KeptOut(token=token, expires_at=kept.expires_at, margin_seconds=kept.margin.total_seconds())


@router.post("/leases/{token}/release")
def release_lease(token: str, who: Who, context: Context, desk: AtDesk) -> LeaseOut:
    """From any replica, and as often as you like; one that has ended stays as it ended."""
    ended = leases.release_lease(context.services, token, who=who.who, only_agent=who.only_agent)
    desk.leases.ring()
    return LeaseOut.of(ended)


@router.post("/leases/{token}/revoke")
def revoke_lease(token: str, who: Who, context: Context, desk: AtDesk) -> LeaseOut:
    """Takes a lease back; its holder learns of it with the next heartbeat."""
    ended = leases.revoke_lease(context.services, token, who=who.who)
    desk.leases.ring()
    return LeaseOut.of(ended)
