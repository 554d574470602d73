"""The control loop, asked to act now; and who leads."""

from typing import Any

from fastapi import APIRouter, Response

from herdsman.api.auth import Who
from herdsman.api.context import ApiContext, Context
from herdsman.api.routes.answers import refused
from herdsman.api.routes.desk import AtDesk, Desk
from herdsman.api.routes.measured import Measured
from herdsman.control.cycle import Cycle
from herdsman.store import leader
from herdsman.wire.control import CycleOut, LeaderOut

router = APIRouter(route_class=Measured, tags=["control"])


_ELSEWHERE: dict[int | str, dict[str, Any]] = {409: {"description": "Another replica leads, or none."}}


@router.post("/control/reconcile", response_model=CycleOut, responses=_ELSEWHERE)
def reconcile(_who: Who, context: Context, desk: AtDesk) -> CycleOut | Response:
    """One cycle, now. Only the leader acts; another replica says who that is."""
    return _cycle(context, desk)


@router.post("/control/cycle", response_model=CycleOut, responses=_ELSEWHERE)
def cycle(_who: Who, context: Context, desk: AtDesk) -> CycleOut | Response:
    """The same, under the name that a timer calls."""
    return _cycle(context, desk)


@router.get("/leader")
def who_leads(_who: Who, context: Context) -> LeaderOut:
    return _leader(context)


def _cycle(context: ApiContext, desk: Desk) -> CycleOut | Response:
    if context.control is None:
        return _not_here(context, "this replica runs no control loop")
    with desk.cycling:
        ran: Cycle = context.control.reconciler.tick()
    if ran.epoch is None:
        return _not_here(context, "this replica does not lead")
    return CycleOut.model_validate({**ran.summary(), "complete": ran.complete, "steps": ran.steps()})


def _leader(context: ApiContext) -> LeaderOut:
    now, term = context.services.database.read(lambda tx: (tx.now(), leader.find(tx)))
    if term is None:
        return LeaderOut(leads=False, mine=False)
    return LeaderOut(
        leads=term.expires_at > now,
        mine=context.control is not None and context.control.leadership.term is not None,
        holder=term.holder,
        epoch=term.epoch,
        since=term.acquired_at,
        expires_at=term.expires_at,
    )


def _not_here(context: ApiContext, why: str) -> Response:
    found = _leader(context)
    next_step = f"ask {found.holder}" if found.leads else "nobody leads now: ask again in a few seconds"
    return refused(409, "not-leader", f"{why}; {next_step}")
