"""What a job left behind: its attempts, its history, what it wrote."""

from typing import Annotated

from fastapi import APIRouter, Query

from herdsman.api.auth import Who
from herdsman.api.routes.answers import visible
from herdsman.api.routes.measured import Measured
from herdsman.api.state import Server, ServerState
from herdsman.control import commands
from herdsman.control.commands.logs import MOST_PIECES
from herdsman.core.access import Caller
from herdsman.core.model import JobId
from herdsman.store.cursor import LARGEST_PAGE
from herdsman.wire.jobs import AttemptOut, AttemptsOut, EventOut, EventsOut, LogOut, LogsOut

router = APIRouter(route_class=Measured, tags=["jobs"])


@router.get("/jobs/{job_id}/attempts")
def job_attempts(job_id: str, who: Who, server: Server) -> AttemptsOut:
    named = _seen(server, job_id, who)
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
    named = _seen(server, job_id, who)
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
    named = _seen(server, job_id, who)
    page = commands.read_logs(server.services, named, since=since, limit=limit)
    pieces = tuple(
        LogOut(claim_token=each.claim_token, first=each.first, ts=each.ts, lines=tuple(each.lines))
        for each in page.pieces
    )
    return LogsOut(pieces=pieces, next=page.next, ended=page.ended)


def _seen(server: ServerState, job_id: str, who: Caller) -> JobId:
    return visible(commands.find_job(server.services, JobId(job_id)), who).job_id
