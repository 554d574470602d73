"""The control loop, asked to act now; and who leads."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Response

from herdsman.api.auth import Who
from herdsman.api.routes.answers import refused
from herdsman.api.routes.measured import Measured
from herdsman.api.state import Server, ServerState
from herdsman.control.cycle import Cycle
from herdsman.control.requests import PATIENCE, ask_leader, cycle_document
from herdsman.core.access import Caller
from herdsman.core.errors import Overloaded, TooMany
from herdsman.ports import SystemClock
from herdsman.store import leader
from herdsman.wire.control import CycleOut, LeaderOut

router = APIRouter(route_class=Measured, tags=["control"])

AGAIN = timedelta(seconds=5)

_ELSEWHERE: dict[int | str, dict[str, Any]] = {
    409: {"description": "Nobody leads now."},
    503: {"description": "The leader did not answer in time."},
}


@router.post("/control/reconcile", response_model=CycleOut, responses=_ELSEWHERE)
def reconcile(who: Who, server: Server) -> CycleOut | Response:
    """One cycle, now. Only the leader acts; another replica asks it, and brings back what it did."""
    return _cycle(who, server)


@router.post("/control/cycle", response_model=CycleOut, responses=_ELSEWHERE)
def cycle(who: Who, server: Server) -> CycleOut | Response:
    """The same, under the name that a timer calls."""
    return _cycle(who, server)


@router.get("/leader")
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
