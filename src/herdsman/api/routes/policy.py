"""The policy: what holds now, what held before, and who changed it."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from herdsman.api.auth import Who
from herdsman.api.context import Context
from herdsman.api.routes.measured import Measured
from herdsman.control.commands import policy as commands
from herdsman.db.paging import LARGEST_PAGE
from herdsman.wire.limits import EditionOut, HistoryOut, PolicyIn, PolicyOut

router = APIRouter(route_class=Measured, tags=["control"])

_LAST = 2_147_483_647


@router.get("/control/policy")
def find_policy(context: Context) -> PolicyOut:
    """The one that holds now."""
    return commands.find_policy(context.services).shown()


@router.put("/control/policy")
def set_policy(body: PolicyIn, who: Who, context: Context) -> EditionOut:
    """All of it, with what that changes. It holds here at once, and on every other replica within a second."""
    edition = commands.set_policy(
        context.services, body.policy, note=body.note, base_version=body.base_version, who=who.who
    )
    return edition.compared()


@router.get("/control/policy/history")
def policy_history(
    context: Context,
    after: Annotated[int | None, Query(ge=0, le=_LAST)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 50,
) -> HistoryOut:
    """Newest first, each with what it changed."""
    return commands.policy_history(context.services, after=after, limit=limit).shown()


@router.get("/control/policy/{version}")
def find_policy_version(version: Annotated[int, Path(ge=0, le=_LAST)], context: Context) -> PolicyOut:
    return commands.find_policy(context.services, version).shown()
