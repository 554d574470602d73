"""What the dashboard and `herdsman top` read: the whole herd, its decisions, its failures and its money."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi import Path as InPath

from herdsman.api.auth import Who
from herdsman.api.routes.answers import visible
from herdsman.api.routes.measured import Measured
from herdsman.api.state import Server
from herdsman.control import commands
from herdsman.control import decisions as told
from herdsman.control.answers import why
from herdsman.control.failures import list_failures, requeue_group
from herdsman.control.herd import living_herd
from herdsman.control.money import MOST_DAYS
from herdsman.control.shadow_report import report
from herdsman.core.access import Role
from herdsman.core.errors import Forbidden
from herdsman.core.model import JobId
from herdsman.store.cursor import LARGEST_PAGE
from herdsman.wire.dashboard import (
    MOST_HOURS,
    BulkOut,
    CostOut,
    DecisionOut,
    DecisionsOut,
    FailuresOut,
    HerdOut,
    OverviewOut,
    RequeueIn,
    WhyOut,
)
from herdsman.wire.shadow import ShadowReportOut

router = APIRouter(route_class=Measured, tags=["dashboard"])


@router.get("/overview")
def find_overview(_who: Who, server: Server) -> OverviewOut:
    """Everything at a glance; at most half a second old, and older only where a look takes long."""
    return server.overviews.get()


@router.get("/herd")
def find_herd(_who: Who, server: Server) -> HerdOut:
    """Every worker that lives, with the jobs that it holds and its GPUs."""
    return living_herd(server.services)


@router.get("/why/{kind}/{id}")
def find_why(
    kind: Literal["job", "worker", "pool"],
    named: Annotated[str, InPath(alias="id", max_length=128)],
    who: Who,
    server: Server,
) -> WhyOut:
    """Why it is so: what it waits for or what became of it, what was decided about it, and what would change it."""
    if kind == "job":
        visible(commands.find_job(server.services, JobId(named)), who)
    elif who.role is Role.SUBMITTER:
        raise Forbidden(f"a submitter may ask about its jobs only, not about a {kind}")
    return why(server.services, kind, named)


@router.get("/decisions")
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


@router.get("/decisions/shadow")
def find_shadow(
    _who: Who, server: Server, hours: Annotated[int, Query(ge=1, le=MOST_HOURS)] = 24
) -> ShadowReportOut:
    """How often a second scaling policy would have done something else, by how many workers, and where last."""
    return report(server.services, hours)


@router.get("/decisions/{cycle}")
def find_decision(cycle: Annotated[int, InPath(ge=0, lt=2**63)], _who: Who, server: Server) -> DecisionOut:
    """One cycle with what it saw, and what would have added a worker then."""
    return told.find_decision(server.services, cycle)


@router.get("/failures")
def find_failures(
    _who: Who, server: Server, since_hours: Annotated[int, Query(ge=1, le=MOST_HOURS)] = 24
) -> FailuresOut:
    """Jobs that failed, in groups of the same cause, the largest first."""
    return list_failures(server.services, since_hours)


@router.post("/failures/requeue")
def requeue_failures(wanted: RequeueIn, who: Who, server: Server) -> BulkOut:
    """The jobs of one group that have given up run once more; those that wait for their retry do so anyway."""
    done = requeue_group(
        server.services, wanted.key, hours=wanted.since_hours, limit=wanted.limit, who=who.who
    )
    if done.changed:
        server.announce_queued()
    return done


@router.get("/cost")
def find_cost(_who: Who, server: Server, days: Annotated[int, Query(ge=1, le=MOST_DAYS)] = 7) -> CostOut:
    """What instances cost, in USD: by day, hour, pool and type of job. Days are those of UTC, today's included."""
    return server.costs.of(days)
