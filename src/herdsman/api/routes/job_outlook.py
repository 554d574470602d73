"""Jobs as a person follows them: when they end, where their time went, and many of them at once."""

from fastapi import APIRouter

from herdsman.api.auth import Who
from herdsman.api.routes.answers import visible
from herdsman.api.routes.measured import Measured
from herdsman.api.state import Server, ServerState
from herdsman.control import commands
from herdsman.control.eta import eta
from herdsman.control.failures import cancel_jobs, retry_jobs
from herdsman.control.timeline import timeline
from herdsman.core.access import Caller
from herdsman.core.model import JobId
from herdsman.wire.dashboard import BulkOut, EtaOut, JobIdsIn, TimelineOut

router = APIRouter(route_class=Measured, tags=["jobs"])


@router.get("/jobs/{job_id}/eta")
def job_eta(job_id: str, who: Who, server: Server) -> EtaOut:
    """Its place in the line, and when it is likely to start and to end, from how long others took."""
    return eta(server.services, _seen(server, job_id, who))


@router.get("/jobs/{job_id}/timeline")
def job_timeline(job_id: str, who: Who, server: Server) -> TimelineOut:
    """Where its time and its money went, stretch by stretch."""
    return timeline(server.services, _seen(server, job_id, who))


@router.post("/jobs/cancel")
def cancel_many(wanted: JobIdsIn, who: Who, server: Server) -> BulkOut:
    """Each is answered by itself: one that has ended does not keep the others."""
    ids = [JobId(each) for each in wanted.ids]
    return cancel_jobs(server.services, ids, who=who.who, agent=who.only_agent)


@router.post("/jobs/retry")
def retry_many(wanted: JobIdsIn, who: Who, server: Server) -> BulkOut:
    """Jobs that have ended run once more; each is answered by itself."""
    ids = [JobId(each) for each in wanted.ids]
    done = retry_jobs(server.services, ids, who=who.who, agent=who.only_agent)
    if done.changed:
        server.announce_queued()
    return done


def _seen(server: ServerState, job_id: str, who: Caller) -> JobId:
    return visible(commands.find_job(server.services, JobId(job_id)), who).job_id
