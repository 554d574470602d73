"""The fleet: who leads, cycles on demand, and what the dashboard and `herdsman top` read of it."""

from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath
from starlette.concurrency import run_in_threadpool

from herdsman.access.commands import admit_worker, renew_worker_token
from herdsman.access.rules import Caller, Role
from herdsman.db.paging import LARGEST_PAGE
from herdsman.errors import Conflict, Overloaded, TooMany
from herdsman.fleet import commands, leader_sql, wire, workers_sql
from herdsman.fleet.cost import MOST_DAYS
from herdsman.fleet.reconcile import PATIENCE, ask_leader
from herdsman.fleet.recording import Cycle
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs import assign, worker_commands, worker_wire
from herdsman.jobs import wire as jobs_wire
from herdsman.jobs.failures import list_failures, requeue_group
from herdsman.ports import SystemClock
from herdsman.server.request import Answer, ApiRoute, BusyRoute, Who, own_worker, refused
from herdsman.server.state import Server, ServerState
from herdsman.states import WorkerStatus
from herdsman.wire import new_worker_id

router = APIRouter(route_class=ApiRoute)
AGAIN = timedelta(seconds=5)
_ELSEWHERE: dict[int | str, dict[str, Any]] = {
    409: {"description": "Nobody leads now."},
    503: {"description": "The leader did not answer in time."},
}


@router.post("/control/reconcile", response_model=wire.CycleOut, responses=_ELSEWHERE, tags=["control"])
def reconcile(who: Who, server: Server) -> wire.CycleOut | Response:
    """One cycle, now. Only the leader acts; another replica asks it, and brings back what it did."""
    return _cycle(who, server)


@router.post("/control/cycle", response_model=wire.CycleOut, responses=_ELSEWHERE, tags=["control"])
def cycle(who: Who, server: Server) -> wire.CycleOut | Response:
    """The same, under the name that a timer calls."""
    return _cycle(who, server)


@router.get("/leader", tags=["control"])
def who_leads(_who: Who, server: Server) -> wire.LeaderOut:
    return _leader(server)


def _cycle(who: Caller, server: ServerState) -> wire.CycleOut | Response:
    if server.control is not None and server.control.leadership.term is not None:
        with server.cycling:
            ran: Cycle = server.control.reconciler.tick()
        if ran.epoch is not None:
            return wire.CycleOut.model_validate(ran.document())
    # While nobody leads, nobody is asked. A leader that ends meanwhile leaves the answer to the next one.
    found = _leader(server)
    if not found.leads:
        return refused(409, "not-leader", "nobody leads now: ask again in a few seconds")
    if not server.forwarding.acquire(blocking=False):
        raise TooMany("others here wait for the leader already: ask again soon", retry_after=AGAIN)
    server.announce_control("reconcile", who.who)
    try:
        done = ask_leader(server.services, uuid4().hex, who.who, SystemClock(), server.stopping, PATIENCE)
    finally:
        server.forwarding.release()
    if done is None:
        raise Overloaded(f"{found.holder} leads, but did not answer: ask again", retry_after=AGAIN, code="no-leader")
    return wire.CycleOut.model_validate({**done, "forwarded": True})


def _leader(server: ServerState) -> wire.LeaderOut:
    now, term = server.services.database.read(lambda tx: (tx.now(), leader_sql.find_leader(tx)))
    if term is None:
        return wire.LeaderOut(leads=False, mine=False)
    return wire.LeaderOut(
        leads=term.expires_at > now,
        mine=server.control is not None and server.control.leadership.term is not None,
        holder=term.holder,
        epoch=term.epoch,
        since=term.acquired_at,
        expires_at=term.expires_at,
    )


@router.get("/overview", tags=["dashboard"])
def find_overview(_who: Who, server: Server) -> wire.OverviewOut:
    """Everything on one page; at most half a second old, and older only where reading takes long."""
    return server.overviews.get()


@router.get("/fleet", tags=["dashboard"])
def find_fleet(_who: Who, server: Server) -> wire.FleetOut:
    """Every worker that lives, with the jobs that it holds and its GPUs."""
    return commands.living_workers(server.services)


@router.get("/decisions", tags=["dashboard"])
def list_decisions(
    _who: Who,
    server: Server,
    after: Annotated[str | None, Query(max_length=32)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 50,
    pool: Annotated[str | None, Query(max_length=128)] = None,
    only: Annotated[
        Literal["acted", "shadow"] | None,
        Query(description="`acted`: without the cycles that did nothing; `shadow`: where a shadow policy differed."),
    ] = None,
) -> wire.DecisionsOut:
    """Cycles of the control loop, newest first. A page may be short where few of them match: go on with `next`."""
    return commands.list_decisions(
        server.services, after=after, limit=limit, pool=pool, acted=only == "acted", shadow=only == "shadow"
    )


@router.get("/decisions/shadow", tags=["dashboard"])
def find_shadow(
    _who: Who, server: Server, hours: Annotated[int, Query(ge=1, le=jobs_wire.MOST_HOURS)] = 24
) -> wire.ShadowReportOut:
    """How often a second scaling policy would have done something else, by how many workers, and where last."""
    return commands.report(server.services, hours)


@router.get("/decisions/{cycle}", tags=["dashboard"])
def find_decision(cycle: Annotated[int, InPath(ge=0, lt=2**63)], _who: Who, server: Server) -> wire.DecisionOut:
    """One cycle with what it saw, and what would have added a worker then."""
    return commands.find_decision(server.services, cycle)


@router.get("/failures", tags=["dashboard"])
def find_failures(
    _who: Who, server: Server, since_hours: Annotated[int, Query(ge=1, le=jobs_wire.MOST_HOURS)] = 24
) -> jobs_wire.FailuresOut:
    """Jobs that failed, in groups of the same cause, the largest first."""
    return list_failures(server.services, since_hours)


@router.post("/failures/requeue", tags=["dashboard"])
def requeue_failures(wanted: jobs_wire.RequeueIn, who: Who, server: Server) -> jobs_wire.BulkOut:
    """The jobs of one group that have given up run once more; those that wait for their retry do so anyway."""
    done = requeue_group(server.services, wanted.key, hours=wanted.since_hours, limit=wanted.limit, who=who.who)
    if done.changed:
        server.announce_queued()
    return done


@router.get("/cost", tags=["dashboard"])
def find_cost(_who: Who, server: Server, days: Annotated[int, Query(ge=1, le=MOST_DAYS)] = 7) -> wire.CostOut:
    """What instances cost, in USD: by day, hour, pool and type of job. Days are those of UTC, today's included."""
    return server.costs.of(days)


workers_router = APIRouter(route_class=ApiRoute, tags=["workers"])
BEATS_PER_CLAIM = 6
"""So many beats may be lost before a claim is."""


@workers_router.get("/workers")
def list_workers(
    _who: Who,
    server: Server,
    status: Annotated[list[WorkerStatus] | None, Query(max_length=20)] = None,
    pool: Annotated[str | None, Query(max_length=128)] = None,
    after: Annotated[str | None, Query(max_length=512)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 50,
) -> wire.WorkersOut:
    """Newest first. `status` may be repeated."""
    states, named = tuple(status or ()), None if pool is None else PoolId(pool)
    page = server.services.database.read(
        lambda tx: workers_sql.page_workers(tx, states=states, pool=named, after=after, limit=limit)
    )
    return wire.WorkersOut(workers=tuple(wire.WorkerOut.of(each) for each in page.workers), next=page.next)


@workers_router.get("/workers/{worker_id}")
def find_worker(worker_id: str, _who: Who, server: Server) -> wire.WorkerOut:
    return wire.WorkerOut.of(server.services.database.read(lambda tx: workers_sql.get_worker(tx, WorkerId(worker_id))))


@workers_router.post("/workers/register", status_code=201)
def register(request: Request, wanted: worker_wire.RegisterIn, who: Who, server: Server) -> worker_wire.RegisteredOut:
    """The token of a worker: for the machine that was started as one, or for one that a person adds manually."""
    named = wanted.worker_id or who.worker_id or new_worker_id()
    worker_id = WorkerId(named)
    manual = who.role in (Role.ADMIN, Role.OPERATOR, Role.ENROLLER)
    new = False
    if manual:
        # A conflict: it was sent again, or is a worker that the control loop has made.
        with suppress(Conflict):
            commands.register_worker(
                server.services, worker_id, pool=PoolId(wanted.pool), instance_type=wanted.instance_type
            )
            new = True
    issued = admit_worker(server.services, server.keyring, who, worker_id, wanted.incarnation, new=new)
    program, _, version = request.headers.get("user-agent", "").partition("/")
    if program == "herdsman":
        server.services.database.transact(lambda tx: workers_sql.note_version(tx, worker_id, version))
    assert issued.token.expires_at is not None
    ttl = server.services.policy.claim_ttl.total_seconds()
    return worker_wire.RegisteredOut(
        worker_id=worker_id,
        token=issued.secret,
        expires_at=issued.token.expires_at,
        heartbeat_seconds=ttl / BEATS_PER_CLAIM,
        claim_ttl_seconds=ttl,
    )


busy_router = APIRouter(route_class=BusyRoute, tags=["workers"])


@busy_router.post("/workers/{worker_id}/heartbeat", response_model=worker_wire.HeartbeatReplyOut)
async def heartbeat(worker_id: str, beat: worker_wire.HeartbeatIn, who: Who, server: Server) -> Answer:
    """Keeps the worker and its claims alive together, and brings back what it must do."""
    me = own_worker(who, worker_id)
    reply = await run_in_threadpool(_record_heartbeat, server, me, beat, who)
    if beat.report is not None:
        server.leases.ring()
    return Answer(200, reply.model_dump_json().encode())


def _record_heartbeat(
    server: ServerState, me: WorkerId, beat: worker_wire.HeartbeatIn, who: Caller
) -> worker_wire.HeartbeatReplyOut:
    reply = worker_wire.HeartbeatReplyOut.of(worker_commands.record_heartbeat(server.services, me, beat.heartbeat()))
    issued = renew_worker_token(server.services, server.keyring, who)
    if issued is None:
        return reply
    return reply.model_copy(update={"token": issued.secret, "token_expires_at": issued.token.expires_at})


@workers_router.get("/workers/{worker_id}/claims")
def held(worker_id: str, who: Who, server: Server) -> worker_wire.HeldClaimsOut:
    """What the worker holds. It asks after an answer was lost, and gives back what it does not work on."""
    keys = assign.held_claims(server.services, own_worker(who, worker_id), who.incarnation)
    return worker_wire.HeldClaimsOut(
        claims=tuple(worker_wire.HeldClaimOut(job_id=key.job_id, token=key.token) for key in keys)
    )


@workers_router.post("/workers/{worker_id}/leave", status_code=204)
def leave(worker_id: str, who: Who, server: Server) -> None:
    commands.leave(server.services, own_worker(who, worker_id))


@workers_router.post("/workers/{worker_id}/drain")
def drain_worker(worker_id: str, who: Who, server: Server) -> wire.DrainedOut:
    """It takes no new job, finishes what it holds and leaves. One that is leaving already is left alone."""
    status, news = commands.drain_worker(server.services, WorkerId(worker_id), who=who.who)
    return wire.DrainedOut(worker_id=worker_id, status=status, already=not news)
