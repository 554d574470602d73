"""Jobs as a person follows them: when they end, where their time went, and many of them at once."""

from fastapi import APIRouter

from herdsman.api.auth import Who
from herdsman.api.context import ApiContext, Context
from herdsman.api.routes.answers import visible
from herdsman.api.routes.measured import Measured
from herdsman.control import commands
from herdsman.control.eta import eta
from herdsman.control.failures import cancel_jobs, retry_jobs
from herdsman.control.timeline import timeline
from herdsman.core.access import Caller
from herdsman.core.model import JobId
from herdsman.wire.explain import EtaOut, TimelineOut
from herdsman.wire.jobs import BulkOut, JobIdsIn

router = APIRouter(route_class=Measured, tags=["jobs"])


@router.get("/jobs/{job_id}/eta")
def job_eta(job_id: str, who: Who, context: Context) -> EtaOut:
    """Its place in the line, and when it is likely to start and to end, from how long others took."""
    return eta(context.services, _seen(context, job_id, who))


@router.get("/jobs/{job_id}/timeline")
def job_timeline(job_id: str, who: Who, context: Context) -> TimelineOut:
    """Where its time and its money went, stretch by stretch."""
    return timeline(context.services, _seen(context, job_id, who))


@router.post("/jobs/cancel")
def cancel_many(wanted: JobIdsIn, who: Who, context: Context) -> BulkOut:
    """Each is answered by itself: one that has ended does not keep the others."""
    ids = [JobId(each) for each in wanted.ids]
    return cancel_jobs(context.services, ids, who=who.who, agent=who.only_agent)


@router.post("/jobs/retry")
def retry_many(wanted: JobIdsIn, who: Who, context: Context) -> BulkOut:
    """Jobs that have ended run once more; each is answered by itself."""
    ids = [JobId(each) for each in wanted.ids]
    done = retry_jobs(context.services, ids, who=who.who, agent=who.only_agent)
    context.announce_queued(done.changed)
    return done


def _seen(context: ApiContext, job_id: str, who: Caller) -> JobId:
    return visible(commands.find_job(context.services, JobId(job_id)), who).job_id
