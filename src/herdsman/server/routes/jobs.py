"""Jobs, for people and their programs."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from herdsman.control import commands
from herdsman.control.commands.logs import MOST_PIECES
from herdsman.control.failures import cancel_jobs, retry_jobs
from herdsman.core.access import Caller
from herdsman.core.errors import TooMany
from herdsman.core.model import Job, JobFilter, JobId, NewJob, PoolId
from herdsman.core.retry import FailureClass
from herdsman.core.states import JOB, JobState
from herdsman.core.task_status import states_of
from herdsman.db.paging import LARGEST_PAGE
from herdsman.server.request import ApiRoute, Who, refused, visible_job
from herdsman.server.state import Server, ServerState
from herdsman.wire.jobs import (
    AttemptOut,
    AttemptsOut,
    BulkOut,
    CancelOut,
    EventOut,
    EventsOut,
    JobDetail,
    JobIdsIn,
    JobIn,
    JobOut,
    JobsIn,
    JobsOut,
    LogOut,
    LogsOut,
    ResultOut,
    RetryIn,
    SubmittedManyOut,
    SubmittedOut,
)

router = APIRouter(route_class=ApiRoute, tags=["jobs"])

Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE)]
Text = Annotated[str | None, Query(max_length=255)]


@router.post(
    "/jobs/submit",
    status_code=201,
    responses={200: {"model": SubmittedOut}},
    response_model_exclude_none=True,
)
async def submit(job: JobIn, response: Response, who: Who, server: Server) -> SubmittedOut:
    """Stored before the answer. 200 says that the same job had been submitted before."""
    new = _new(job, who)
    done = await server.submits.call(new)
    if done.created:
        server.announce_jobs([new], [done])
    else:
        response.status_code = 200
    response.headers["Location"] = f"/jobs/{done.job_id}"
    return SubmittedOut.of(done)


@router.post(
    "/jobs/submit/batch",
    status_code=201,
    responses={200: {"model": SubmittedManyOut}},
    response_model_exclude_none=True,
)
def submit_many(batch: JobsIn, response: Response, who: Who, server: Server) -> SubmittedManyOut:
    """All of them or, when one is refused, none."""
    news = [_new(job, who) for job in batch.jobs]
    try:
        done = commands.submit_jobs(server.services, news)
    except TooMany as error:
        server.metrics.admitted([error] * len(news))
        raise
    server.metrics.admitted(done)
    if any(each.created for each in done):
        server.announce_jobs(news, done)
    else:
        response.status_code = 200
    return SubmittedManyOut(jobs=tuple(SubmittedOut.of(each) for each in done))


@router.get("/jobs")
def list_jobs(
    who: Who,
    server: Server,
    status: Annotated[list[str] | None, Query(max_length=20)] = None,
    type: Text = None,  # noqa: A002  (the name that the query has)
    agent: Text = None,
    pool: Text = None,
    tag: Text = None,
    failure_class: FailureClass | None = None,
    begins: Annotated[str | None, Query(max_length=128)] = None,
    after: Annotated[str | None, Query(max_length=512)] = None,
    limit: Limit = 50,
) -> JobsOut:
    """Newest first. `status` takes the names of jobs and those of tasks, and may be repeated. With `begins`, the first
    of those whose ids begin so, by their ids and on one page, however old they are."""
    wanted = JobFilter(
        states=_states(status or []),
        type=type,
        agent=who.only_agent or agent,
        pool=None if pool is None else PoolId(pool),
        tag=tag,
        failure_class=failure_class,
        begins=begins,
    )
    page = commands.list_jobs(server.services, wanted, after=after, limit=limit)
    return JobsOut(jobs=tuple(JobOut.of(job) for job in page.jobs), next=page.next)


@router.get(
    "/jobs/{job_id}", response_model=JobDetail, responses={304: {"description": "It is as you know it."}}
)
def find_job(
    job_id: str,
    response: Response,
    who: Who,
    server: Server,
    if_none_match: Annotated[str | None, Header(max_length=1000)] = None,
) -> JobDetail | Response:
    job = visible_job(server, job_id, who)
    tag = _tag(job)
    if if_none_match is not None and tag in [each.strip() for each in if_none_match.split(",")]:
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return JobDetail.of(job)


@router.get(
    "/jobs/{job_id}/result", response_model=ResultOut, responses={409: {"description": "It has not ended."}}
)
def find_result(job_id: str, who: Who, server: Server) -> ResultOut | Response:
    """200 once the job has ended, however it ended: `status` says whether there is a result."""
    job = visible_job(server, job_id, who)
    if job.state not in JOB.terminal:
        return refused(409, "not-finished", f"job {job_id!r} is {job.state}: ask again when it has ended")
    return ResultOut.of(job)


@router.post("/jobs/{job_id}/cancel", status_code=202)
def cancel(job_id: str, who: Who, server: Server) -> CancelOut:
    """From here on the job is never done. One that is held is `cancelled` once its worker has let go."""
    _check_visible(server, job_id, who)
    state = commands.cancel_job(server.services, JobId(job_id), who=who.who)
    return CancelOut(job_id=job_id, status=state)


@router.post("/jobs/{job_id}/retry")
def retry(job_id: str, who: Who, server: Server, wanted: RetryIn | None = None) -> JobOut:
    """A job that has ended runs once more."""
    _check_visible(server, job_id, who)
    services, named = server.services, JobId(job_id)
    if wanted is not None and wanted.edit:
        commands.requeue_edited_job(services, named, wanted.payload, who=who.who)
    else:
        commands.requeue_job(services, named, who=who.who)
    server.announce_queued()
    return JobOut.of(commands.find_job(services, named))


def _new(job: JobIn, who: Caller) -> NewJob:
    """A submitter's jobs are its own agent's, whatever the body says (X2)."""
    new = job.new_job(who.agent)
    return new if who.only_agent is None else replace(new, agent=who.only_agent)


def _states(names: list[str]) -> tuple[JobState, ...]:
    known = {str(state) for state in JobState}
    found = [(JobState(name),) if name in known else states_of(name) for name in names]
    return tuple(dict.fromkeys(state for states in found for state in states))


def _check_visible(server: ServerState, job_id: str, who: Caller) -> None:
    if who.only_agent is not None:
        visible_job(server, job_id, who)


def _tag(job: Job) -> str:
    """Progress is no change of version, but it is news."""
    at = 0 if job.progress_at is None else round(job.progress_at.timestamp() * 1_000_000)
    return f'"{job.version}.{at}"'


@router.get("/jobs/{job_id}/attempts")
def job_attempts(job_id: str, who: Who, server: Server) -> AttemptsOut:
    named = visible_job(server, job_id, who).job_id
    found = commands.find_attempts(server.services, named)
    return AttemptsOut(attempts=tuple(AttemptOut.of(each) for each in found))


@router.get("/jobs/{job_id}/events")
def job_events(
    job_id: str,
    who: Who,
    server: Server,
    since: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = LARGEST_PAGE,
) -> EventsOut:
    """Its history by `seq`, oldest first. Send `next` as `since` to get what came later."""
    named = visible_job(server, job_id, who).job_id
    later = [each for each in commands.find_history(server.services, named) if each.seq > since][:limit]
    return EventsOut(
        events=tuple(EventOut.of(each) for each in later), next=str(later[-1].seq if later else since)
    )


@router.get("/jobs/{job_id}/logs")
def job_logs(
    job_id: str,
    who: Who,
    server: Server,
    since: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_PIECES)] = MOST_PIECES,
) -> LogsOut:
    """What its attempts wrote, oldest first."""
    named = visible_job(server, job_id, who).job_id
    page = commands.read_logs(server.services, named, since=since, limit=limit)
    pieces = tuple(
        LogOut(claim_token=each.claim_token, first=each.first, ts=each.ts, lines=tuple(each.lines))
        for each in page.pieces
    )
    return LogsOut(pieces=pieces, next=page.next, ended=page.ended)


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
