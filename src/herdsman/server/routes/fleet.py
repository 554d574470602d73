"""The fleet: who leads, cycles on demand, and what the dashboard and `herdsman top` read of it."""

from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath

from herdsman.control import decisions as told
from herdsman.control.cycle import Cycle
from herdsman.control.failures import list_failures, requeue_group
from herdsman.control.herd import living_herd
from herdsman.control.money import MOST_DAYS
from herdsman.control.requests import PATIENCE, ask_leader, cycle_document
from herdsman.control.shadow_report import report
from herdsman.core.access import Caller
from herdsman.core.errors import Overloaded, TooMany
from herdsman.db.paging import LARGEST_PAGE
from herdsman.ports import SystemClock
from herdsman.server.request import ApiRoute, Who, refused
from herdsman.server.state import Server, ServerState
from herdsman.store import leader
from herdsman.wire.fleet import (
    CostOut,
    CycleOut,
    DecisionOut,
    DecisionsOut,
    HerdOut,
    LeaderOut,
    OverviewOut,
    ShadowReportOut,
)
from herdsman.wire.jobs import MOST_HOURS, BulkOut, FailuresOut, RequeueIn

router = APIRouter(route_class=ApiRoute)

AGAIN = timedelta(seconds=5)

_ELSEWHERE: dict[int | str, dict[str, Any]] = {
    409: {"description": "Nobody leads now."},
    503: {"description": "The leader did not answer in time."},
}


@router.post("/control/reconcile", response_model=CycleOut, responses=_ELSEWHERE, tags=["control"])
def reconcile(who: Who, server: Server) -> CycleOut | Response:
    """One cycle, now. Only the leader acts; another replica asks it, and brings back what it did."""
    return _cycle(who, server)


@router.post("/control/cycle", response_model=CycleOut, responses=_ELSEWHERE, tags=["control"])
def cycle(who: Who, server: Server) -> CycleOut | Response:
    """The same, under the name that a timer calls."""
    return _cycle(who, server)


@router.get("/leader", tags=["control"])
def who_leads(_who: Who, server: Server) -> LeaderOut:
    return _leader(server)


def _cycle(who: Caller, server: ServerState) -> CycleOut | Response:
    if server.control is not None and server.control.leadership.term is not None:
        with server.cycling:
            ran: Cycle = server.control.reconciler.tick()
        if ran.epoch is not None:
            return CycleOut.model_validate(cycle_document(ran))
    return _forward(who, server)


def _forward(who: Caller, server: ServerState) -> CycleOut | Response:
    """While nobody leads, nobody is asked. A leader that ends meanwhile leaves the answer to the next one."""
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
        raise Overloaded(
            f"{found.holder} leads, but did not answer: ask again", retry_after=AGAIN, code="no-leader"
        )
    return CycleOut.model_validate({**done, "forwarded": True})


def _leader(server: ServerState) -> LeaderOut:
    now, term = server.services.database.read(lambda tx: (tx.now(), leader.find(tx)))
    if term is None:
        return LeaderOut(leads=False, mine=False)
    return LeaderOut(
        leads=term.expires_at > now,
        mine=server.control is not None and server.control.leadership.term is not None,
        holder=term.holder,
        epoch=term.epoch,
        since=term.acquired_at,
        expires_at=term.expires_at,
    )


@router.get("/overview", tags=["dashboard"])
def find_overview(_who: Who, server: Server) -> OverviewOut:
    """Everything at a glance; at most half a second old, and older only where a look takes long."""
    return server.overviews.get()


@router.get("/herd", tags=["dashboard"])
def find_herd(_who: Who, server: Server) -> HerdOut:
    """Every worker that lives, with the jobs that it holds and its GPUs."""
    return living_herd(server.services)


@router.get("/decisions", tags=["dashboard"])
def list_decisions(
    _who: Who,
    server: Server,
    after: Annotated[str | None, Query(max_length=32)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 50,
    pool: Annotated[str | None, Query(max_length=128)] = None,
    only: Annotated[
        Literal["acted", "shadow"] | None,
        Query(
            description="`acted`: without the cycles that did nothing; `shadow`: where a shadow policy differed."
        ),
    ] = None,
) -> DecisionsOut:
    """Cycles of the control loop, newest first. A page may be short where few of them match: go on with `next`."""
    return told.list_decisions(
        server.services,
        after=after,
        limit=limit,
        pool=pool,
        acted=only == "acted",
        shadow=only == "shadow",
    )


@router.get("/decisions/shadow", tags=["dashboard"])
def find_shadow(
    _who: Who, server: Server, hours: Annotated[int, Query(ge=1, le=MOST_HOURS)] = 24
) -> ShadowReportOut:
    """How often a second scaling policy would have done something else, by how many workers, and where last."""
    return report(server.services, hours)


@router.get("/decisions/{cycle}", tags=["dashboard"])
def find_decision(cycle: Annotated[int, InPath(ge=0, lt=2**63)], _who: Who, server: Server) -> DecisionOut:
    """One cycle with what it saw, and what would have added a worker then."""
    return told.find_decision(server.services, cycle)


@router.get("/failures", tags=["dashboard"])
def find_failures(
    _who: Who, server: Server, since_hours: Annotated[int, Query(ge=1, le=MOST_HOURS)] = 24
) -> FailuresOut:
    """Jobs that failed, in groups of the same cause, the largest first."""
    return list_failures(server.services, since_hours)


@router.post("/failures/requeue", tags=["dashboard"])
def requeue_failures(wanted: RequeueIn, who: Who, server: Server) -> BulkOut:
    """The jobs of one group that have given up run once more; those that wait for their retry do so anyway."""
    done = requeue_group(
        server.services, wanted.key, hours=wanted.since_hours, limit=wanted.limit, who=who.who
    )
    if done.changed:
        server.announce_queued()
    return done


@router.get("/cost", tags=["dashboard"])
def find_cost(_who: Who, server: Server, days: Annotated[int, Query(ge=1, le=MOST_DAYS)] = 7) -> CostOut:
    """What instances cost, in USD: by day, hour, pool and type of job. Days are those of UTC, today's included."""
    return server.costs.of(days)
