"""Jobs, for people and their programs."""

from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from herdsman.access.rules import Caller
from herdsman.db.paging import LARGEST_PAGE
from herdsman.errors import TooMany
from herdsman.ids import JobId, PoolId
from herdsman.jobs import commands, wire, worker_commands, worker_wire
from herdsman.jobs.commands import MOST_PIECES
from herdsman.jobs.failures import cancel_jobs, retry_jobs
from herdsman.jobs.model import ClaimKey, Failure, FailureClass, JobFilter
from herdsman.jobs.rules import states_of
from herdsman.server.request import Answer, ApiRoute, BusyRoute, Who, own_worker, refused, visible_job
from herdsman.server.state import Server, ServerState, count_admissions
from herdsman.states import JOB, JobStatus

router = APIRouter(route_class=ApiRoute, tags=["jobs"])
busy_router = APIRouter(route_class=BusyRoute, tags=["jobs"])
Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE)]
Text = Annotated[str | None, Query(max_length=255)]


@busy_router.post(
    "/jobs/submit", status_code=201, response_model=wire.SubmittedOut, responses={200: {"model": wire.SubmittedOut}}
)
async def submit(job: wire.JobIn, who: Who, server: Server) -> Answer:
    """Stored before the answer. 200 says that the same job had been submitted before."""
    # A submitter's jobs are its own agent's, whatever the body says (X2).
    new = job.new_job(who.agent, only=who.only_agent)
    done = await server.writer.submit(new)
    body = wire.SubmittedOut.of(done).model_dump_json(exclude_none=True).encode()
    return Answer(201 if done.created else 200, body, ((b"location", b"/jobs/" + done.job_id.encode()),))


@router.post(
    "/jobs/submit/batch",
    status_code=201,
    responses={200: {"model": wire.SubmittedManyOut}},
    response_model_exclude_none=True,
)
def submit_many(batch: wire.JobsIn, response: Response, who: Who, server: Server) -> wire.SubmittedManyOut:
    """All of them or, when one is refused, none."""
    news = [job.new_job(who.agent, only=who.only_agent) for job in batch.jobs]
    try:
        done = commands.submit_jobs(server.services, news)
    except TooMany as error:
        count_admissions(server.metrics, [error] * len(news))
        raise
    count_admissions(server.metrics, done)
    if any(each.created for each in done):
        server.announce_jobs(news, done)
    else:
        response.status_code = 200
    return wire.SubmittedManyOut.of({"jobs": done})


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
) -> wire.JobsOut:
    """Newest first. `status` takes the names of jobs and those of tasks, and may be repeated. With `begins`, the first
    of those whose ids begin so, by their ids and on one page, however old they are."""
    known = {str(state) for state in JobStatus}
    states = [(JobStatus(name),) if name in known else states_of(name) for name in status or []]
    wanted = JobFilter(
        states=tuple(dict.fromkeys(state for each in states for state in each)),
        type=type,
        agent=who.only_agent or agent,
        pool=None if pool is None else PoolId(pool),
        tag=tag,
        failure_class=failure_class,
        begins=begins,
    )
    page = commands.list_jobs(server.services, wanted, after=after, limit=limit)
    return wire.JobsOut.of(page)


@router.get("/jobs/{job_id}", response_model=wire.JobDetail, responses={304: {"description": "It is as you know it."}})
def find_job(
    job_id: str,
    response: Response,
    who: Who,
    server: Server,
    if_none_match: Annotated[str | None, Header(max_length=1000)] = None,
) -> wire.JobDetail | Response:
    job = visible_job(server, job_id, who)
    # Progress is no change of version, but it is news.
    at = 0 if job.progress_at is None else round(job.progress_at.timestamp() * 1_000_000)
    tag = f'"{job.version}.{at}"'
    if if_none_match is not None and tag in [each.strip() for each in if_none_match.split(",")]:
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return wire.JobDetail.of(job)


@router.get(
    "/jobs/{job_id}/result", response_model=wire.ResultOut, responses={409: {"description": "It has not ended."}}
)
def find_result(job_id: str, who: Who, server: Server) -> wire.ResultOut | Response:
    """200 once the job has ended, however it ended: `status` says whether there is a result."""
    job = visible_job(server, job_id, who)
    if job.status not in JOB.terminal:
        return refused(409, "not-finished", f"job {job_id!r} is {job.status}: ask again when it has ended")
    return wire.ResultOut.of(job)


@router.post("/jobs/{job_id}/cancel", status_code=202)
def cancel(job_id: str, who: Who, server: Server) -> wire.CancelOut:
    """From here on the job is never done. One that is held is `cancelled` once its worker has stopped it."""
    _check_visible(server, job_id, who)
    state = commands.cancel_job(server.services, JobId(job_id), who=who.who)
    return wire.CancelOut(job_id=job_id, status=state)


@router.post("/jobs/{job_id}/retry")
def retry(job_id: str, who: Who, server: Server, wanted: wire.RetryIn | None = None) -> wire.JobOut:
    """A job that has ended runs once more."""
    _check_visible(server, job_id, who)
    services, named = server.services, JobId(job_id)
    if wanted is not None and wanted.edit:
        commands.requeue_edited_job(services, named, wanted.payload, who=who.who)
    else:
        commands.requeue_job(services, named, who=who.who)
    server.announce_queued()
    return wire.JobOut.of(commands.find_job(services, named))


def _check_visible(server: ServerState, job_id: str, who: Caller) -> None:
    if who.only_agent is not None:
        visible_job(server, job_id, who)


@router.get("/jobs/{job_id}/attempts")
def job_attempts(job_id: str, who: Who, server: Server) -> wire.AttemptsOut:
    named = visible_job(server, job_id, who).job_id
    found = commands.find_attempts(server.services, named)
    return wire.AttemptsOut.of({"attempts": found})


@router.get("/jobs/{job_id}/events")
def job_events(
    job_id: str,
    who: Who,
    server: Server,
    since: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = LARGEST_PAGE,
) -> wire.EventsOut:
    """Its history by `seq`, oldest first. Send `next` as `since` to get what came later."""
    named = visible_job(server, job_id, who).job_id
    later = [each for each in commands.find_history(server.services, named) if each.seq > since][:limit]
    return wire.EventsOut(
        events=tuple(wire.EventOut.of(each) for each in later), next=str(later[-1].seq if later else since)
    )


@router.get("/jobs/{job_id}/logs")
def job_logs(
    job_id: str,
    who: Who,
    server: Server,
    since: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_PIECES)] = MOST_PIECES,
) -> wire.LogsOut:
    """What its attempts wrote, oldest first."""
    named = visible_job(server, job_id, who).job_id
    return wire.LogsOut.of(commands.read_logs(server.services, named, since=since, limit=limit))


@router.post("/jobs/cancel")
def cancel_many(wanted: wire.JobIdsIn, who: Who, server: Server) -> wire.BulkOut:
    """Each is answered by itself: one that has ended does not keep the others."""
    ids = [JobId(each) for each in wanted.ids]
    return cancel_jobs(server.services, ids, who=who.who, agent=who.only_agent)


@router.post("/jobs/retry")
def retry_many(wanted: wire.JobIdsIn, who: Who, server: Server) -> wire.BulkOut:
    """Jobs that have ended run once more; each is answered by itself."""
    ids = [JobId(each) for each in wanted.ids]
    done = retry_jobs(server.services, ids, who=who.who, agent=who.only_agent)
    if done.changed:
        server.announce_queued()
    return done


worker_router = APIRouter(route_class=ApiRoute, tags=["work"])
busy_worker_router = APIRouter(route_class=BusyRoute, tags=["work"])


@busy_worker_router.post("/jobs/claim", response_model=worker_wire.ClaimsOut)
async def claim(ask: worker_wire.ClaimRequestIn, request: Request, who: Who, server: Server) -> Answer:
    """The next jobs for this worker, or none after `wait_seconds`. A worker waits once: the newest call counts."""
    me = own_worker(who)
    pool = who.pool or await server.pool_of(me)
    mine = replace(ask.ask(), incarnation=who.incarnation)
    claims = await server.writer.wait(me, mine, timedelta(seconds=ask.wait_seconds), lambda: gone(request), pool=pool)
    return Answer(200, worker_wire.ClaimsOut.of({"claims": claims}).model_dump_json().encode())


async def gone(request: Request) -> None:
    """Until the caller has hung up. The body has been read, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@worker_router.post("/jobs/start")
def start_many(wanted: worker_wire.StartManyIn, who: Who, server: Server) -> worker_wire.StartedOut:
    """The jobs run from now on, but for those that are refused: their claims are another's by now."""
    me, keys = own_worker(who), [each.key() for each in wanted.claims]
    found = worker_commands.start_jobs(server.services, keys, who=who.who, worker=me, incarnation=who.incarnation)
    return worker_wire.StartedOut(refused=tuple(worker_wire.RefusedOut.of(key, why) for key, why in found.items()))


@busy_worker_router.post("/jobs/finish", response_model=worker_wire.FinishedOut)
async def finish(wanted: worker_wire.FinishIn, who: Who, server: Server) -> Answer:
    """How jobs ended, each answered by itself; with `then`, the next ones come in the same word."""
    then = None if wanted.then is None else replace(wanted.then.ask(), incarnation=who.incarnation)
    endings = [each.ending() for each in wanted.endings]
    done = await server.writer.finish(worker_commands.Report(own_worker(who), endings, then))
    if any(each.status is JobStatus.PENDING for each in done.told):
        server.writer.ring()
    return Answer(200, worker_wire.FinishedOut.of(done).model_dump_json().encode())


@worker_router.post("/jobs/{job_id}/start", status_code=204)
def start(job_id: str, wanted: worker_wire.StartIn, who: Who, server: Server) -> None:
    key, me = _key(job_id, wanted.token), own_worker(who)
    worker_commands.start_job(server.services, key, who=who.who, worker=me, incarnation=who.incarnation)


@worker_router.post("/jobs/{job_id}/progress", status_code=204)
def progress(job_id: str, wanted: worker_wire.ProgressIn, who: Who, server: Server) -> None:
    """A sign of life as well: it renews the claim."""
    key = _key(job_id, wanted.token)
    worker_commands.report_progress(server.services, key, wanted.done, wanted.note, worker=own_worker(who))


@worker_router.post("/jobs/{job_id}/complete")
def complete(job_id: str, wanted: worker_wire.CompleteIn, who: Who, server: Server) -> worker_wire.EndedOut:
    """`cancelled` says that the result was thrown away: somebody had cancelled the job."""
    key = _key(job_id, wanted.token)
    done = worker_commands.complete_job(
        server.services, key, wanted.result, saved=wanted.saved(), who=who.who, worker=own_worker(who)
    )
    return worker_wire.EndedOut(job_id=job_id, status=done)


@worker_router.post("/jobs/{job_id}/fail")
def fail(job_id: str, wanted: worker_wire.FailIn, who: Who, server: Server) -> worker_wire.EndedOut:
    failure = Failure(kind=wanted.kind, error=wanted.error)
    key = _key(job_id, wanted.token)
    state = worker_commands.fail_job(server.services, key, failure, who=who.who, worker=own_worker(who))
    return _ended(job_id, state, server)


@worker_router.post("/jobs/{job_id}/release")
def release(job_id: str, wanted: worker_wire.ReleaseIn, who: Who, server: Server) -> worker_wire.EndedOut:
    """The job is unharmed and keeps its place; the attempt does not count against it."""
    key = _key(job_id, wanted.token)
    state = worker_commands.release_job(server.services, key, wanted.reason, who=who.who, worker=own_worker(who))
    return _ended(job_id, state, server)


@worker_router.get("/jobs/{job_id}/checkpoint")
def get_checkpoint(
    job_id: str, token: Annotated[int, Query(ge=0, lt=2**63)], who: Who, server: Server
) -> worker_wire.CheckpointOut:
    key = _key(job_id, token)
    return worker_wire.CheckpointOut(value=commands.get_checkpoint(server.services, key, worker=own_worker(who)))


@worker_router.put("/jobs/{job_id}/checkpoint", status_code=204)
def put_checkpoint(job_id: str, wanted: worker_wire.CheckpointIn, who: Who, server: Server) -> None:
    key = _key(job_id, wanted.token)
    commands.put_checkpoint(server.services, key, wanted.value, worker=own_worker(who))


@worker_router.put("/jobs/{job_id}/service", status_code=204)
def mark_service(job_id: str, wanted: worker_wire.ServiceIn, who: Who, server: Server) -> None:
    """Where the job is on an external service, so that whoever takes it up next asks there first."""
    key = _key(job_id, wanted.token)
    stands = worker_commands.mark_service(server.services, key, wanted.mark(), worker=own_worker(who))
    server.mirror_service(job_id, stands)


def _key(job_id: str, token: int) -> ClaimKey:
    return ClaimKey(JobId(job_id), token)


def _ended(job_id: str, state: JobStatus, server: ServerState) -> worker_wire.EndedOut:
    if state is JobStatus.PENDING:
        server.writer.ring()
    return worker_wire.EndedOut(job_id=job_id, status=state)
