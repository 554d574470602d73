"""Routes that explain: why something is as it is, when a job is likely to end, where its time went."""

from typing import Annotated, Literal

from fastapi import APIRouter
from fastapi import Path as InPath

from herdsman.access.rules import Role
from herdsman.errors import Forbidden
from herdsman.explain.eta import eta, timeline
from herdsman.explain.why import why_job, why_pool, why_worker
from herdsman.explain.wire import EtaOut, TimelineOut, WhyOut
from herdsman.ids import PoolId, WorkerId
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
    """Why a job, worker or pool is as it is: what it waits for or how it ended, what was decided, what would change it."""
    if kind == "job":
        return why_job(server.services, visible_job(server, named, who).job_id)
    if who.role is Role.SUBMITTER:
        raise Forbidden(f"a submitter may ask about its jobs only, not about a {kind}")
    if kind == "worker":
        return why_worker(server.services, WorkerId(named))
    return why_pool(server.services, PoolId(named))


@router.get("/jobs/{job_id}/eta", tags=["jobs"])
def job_eta(job_id: str, who: Who, server: Server) -> EtaOut:
    """Its position in the queue, and when it is likely to start and to end, from how long others took."""
    return eta(server.services, visible_job(server, job_id, who).job_id)


@router.get("/jobs/{job_id}/timeline", tags=["jobs"])
def job_timeline(job_id: str, who: Who, server: Server) -> TimelineOut:
    """Where its time and its money went, by segment."""
    return timeline(server.services, visible_job(server, job_id, who).job_id)
