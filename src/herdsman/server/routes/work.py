"""Work, for workers. The token says which worker it is; a job is touched only with the token of its claim."""

from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from herdsman.control import commands
from herdsman.core.model import ClaimKey, Failure, JobId
from herdsman.core.states import JobState
from herdsman.server.request import ApiRoute, Who, own_worker
from herdsman.server.state import Server, ServerState
from herdsman.wire.jobs import (
    AskIn,
    CheckpointIn,
    CheckpointOut,
    ClaimOut,
    ClaimsOut,
    CompleteIn,
    EndedOut,
    FailIn,
    FinishedOut,
    FinishIn,
    ProgressIn,
    RefusedOut,
    ReleaseIn,
    ServiceIn,
    StartedOut,
    StartIn,
    StartManyIn,
)

router = APIRouter(route_class=ApiRoute, tags=["work"])


@router.post("/jobs/claim")
async def claim(ask: AskIn, request: Request, who: Who, server: Server) -> ClaimsOut:
    """The next jobs for this worker, or none after `wait_seconds`. A worker waits once: the newest call counts."""
    me = own_worker(who)
    pool = who.pool or await server.pool_of(me)
    mine = replace(ask.ask(), incarnation=who.incarnation)
    claims = await server.dispatcher.wait(
        me, mine, timedelta(seconds=ask.wait_seconds), lambda: gone(request), pool=pool
    )
    return ClaimsOut(claims=tuple(ClaimOut.of(each) for each in claims))


async def gone(request: Request) -> None:
    """Until the caller has hung up. The body has been read, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@router.post("/jobs/start")
def start_many(wanted: StartManyIn, who: Who, server: Server) -> StartedOut:
    """The jobs run from now on, but for those that are refused: their claims are another's by now."""
    me, keys = own_worker(who), [each.key() for each in wanted.claims]
    found = commands.start_jobs(server.services, keys, who=who.who, worker=me, incarnation=who.incarnation)
    return StartedOut(refused=tuple(RefusedOut.of(key, why) for key, why in found.items()))


@router.post("/jobs/finish", response_model=FinishedOut)
def finish(wanted: FinishIn, who: Who, server: Server) -> Response:
    """How jobs ended, each answered by itself; with `then`, the next ones come in the same word."""
    then = None if wanted.then is None else replace(wanted.then.ask(), incarnation=who.incarnation)
    done = commands.finish_jobs(
        server.services, own_worker(who), [each.ending() for each in wanted.endings], then
    )
    if any(each.state is JobState.PENDING for each in done.told):
        server.dispatcher.ring()
    # Made into text here: for a model the framework would check it again and change threads once more.
    return Response(FinishedOut.of(done).model_dump_json(), media_type="application/json")


@router.post("/jobs/{job_id}/start", status_code=204)
def start(job_id: str, wanted: StartIn, who: Who, server: Server) -> None:
    key, me = _key(job_id, wanted.token), own_worker(who)
    commands.start_job(server.services, key, who=who.who, worker=me, incarnation=who.incarnation)


@router.post("/jobs/{job_id}/progress", status_code=204)
def progress(job_id: str, wanted: ProgressIn, who: Who, server: Server) -> None:
    """A sign of life as well: it renews the claim."""
    key = _key(job_id, wanted.token)
    commands.report_progress(server.services, key, wanted.done, wanted.note, worker=own_worker(who))


@router.post("/jobs/{job_id}/complete")
def complete(job_id: str, wanted: CompleteIn, who: Who, server: Server) -> EndedOut:
    """`cancelled` says that the result was thrown away: somebody had cancelled the job."""
    key = _key(job_id, wanted.token)
    done = commands.complete_job(
        server.services, key, wanted.result, saved=wanted.saved(), who=who.who, worker=own_worker(who)
    )
    return EndedOut(job_id=job_id, status=done)


@router.post("/jobs/{job_id}/fail")
def fail(job_id: str, wanted: FailIn, who: Who, server: Server) -> EndedOut:
    failure = Failure(kind=wanted.kind, error=wanted.error)
    key = _key(job_id, wanted.token)
    state = commands.fail_job(server.services, key, failure, who=who.who, worker=own_worker(who))
    return _ended(job_id, state, server)


@router.post("/jobs/{job_id}/release")
def release(job_id: str, wanted: ReleaseIn, who: Who, server: Server) -> EndedOut:
    """The job is unharmed and keeps its place; the attempt does not count against it."""
    key = _key(job_id, wanted.token)
    state = commands.release_job(server.services, key, wanted.why, who=who.who, worker=own_worker(who))
    return _ended(job_id, state, server)


@router.get("/jobs/{job_id}/checkpoint")
def get_checkpoint(
    job_id: str, token: Annotated[int, Query(ge=0, lt=2**63)], who: Who, server: Server
) -> CheckpointOut:
    key = _key(job_id, token)
    return CheckpointOut(value=commands.get_checkpoint(server.services, key, worker=own_worker(who)))


@router.put("/jobs/{job_id}/checkpoint", status_code=204)
def put_checkpoint(job_id: str, wanted: CheckpointIn, who: Who, server: Server) -> None:
    key = _key(job_id, wanted.token)
    commands.put_checkpoint(server.services, key, wanted.value, worker=own_worker(who))


@router.put("/jobs/{job_id}/service", status_code=204)
def mark_service(job_id: str, wanted: ServiceIn, who: Who, server: Server) -> None:
    """Where the job is on an external service, so that whoever takes it up next asks there first."""
    key = _key(job_id, wanted.token)
    stands = commands.mark_service(server.services, key, wanted.mark(), worker=own_worker(who))
    server.mirror_service(job_id, stands)


def _key(job_id: str, token: int) -> ClaimKey:
    return ClaimKey(JobId(job_id), token)


def _ended(job_id: str, state: JobState, server: ServerState) -> EndedOut:
    if state is JobState.PENDING:
        server.dispatcher.ring()
    return EndedOut(job_id=job_id, status=state)
