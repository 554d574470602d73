"""Why something is as it is: what a job waits for, when it is likely to end, where its time went."""

from typing import Annotated, Literal

from fastapi import APIRouter
from fastapi import Path as InPath

from herdsman.access.rules import Role
from herdsman.errors import Forbidden
from herdsman.explain.decisions import why
from herdsman.explain.eta import eta
from herdsman.explain.timeline import timeline
from herdsman.explain.wire import EtaOut, TimelineOut, WhyOut
from herdsman.server.request import ApiRoute, Who, visible_job
from herdsman.server.state import Server

router = APIRouter(route_class=ApiRoute)


@router.get("/why/{kind}/{id}", tags=["dashboard"])
def find_why(
    kind: Literal["job", "worker", "pool"],
    named: Annotated[str, InPath(alias="id", max_length=128)],
    who: Who,
    server: Server,
) -> WhyOut:
    """Why it is so: what it waits for or what became of it, what was decided about it, and what would change it."""
    if kind == "job":
        visible_job(server, named, who)
    elif who.role is Role.SUBMITTER:
        raise Forbidden(f"a submitter may ask about its jobs only, not about a {kind}")
    return why(server.services, kind, named)


@router.get("/jobs/{job_id}/eta", tags=["jobs"])
def job_eta(job_id: str, who: Who, server: Server) -> EtaOut:
    """Its place in the line, and when it is likely to start and to end, from how long others took."""
    return eta(server.services, visible_job(server, job_id, who).job_id)


@router.get("/jobs/{job_id}/timeline", tags=["jobs"])
def job_timeline(job_id: str, who: Who, server: Server) -> TimelineOut:
    """Where its time and its money went, stretch by stretch."""
    return timeline(server.services, visible_job(server, job_id, who).job_id)
