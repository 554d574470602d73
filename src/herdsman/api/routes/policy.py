"""The policy: what holds now, what held before, and who changed it."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from herdsman.api.auth import Who
from herdsman.api.routes.measured import Measured
from herdsman.api.state import Server
from herdsman.control.commands import policy as commands
from herdsman.store.cursor import LARGEST_PAGE
from herdsman.wire.policy import EditionOut, HistoryOut, PolicyIn, PolicyOut

router = APIRouter(route_class=Measured, tags=["control"])

_LAST = 2_147_483_647


@router.get("/control/policy")
def find_policy(server: Server) -> PolicyOut:
    """The one that holds now."""
    return commands.find_policy(server.services).shown()


@router.put("/control/policy")
def set_policy(body: PolicyIn, who: Who, server: Server) -> EditionOut:
    """All of it, with what that changes. It holds here at once, and on every other replica within a second."""
    edition = commands.set_policy(
        server.services, body.policy, note=body.note, base_version=body.base_version, who=who.who
    )
    return edition.compared()


@router.get("/control/policy/history")
def policy_history(
    server: Server,
    after: Annotated[int | None, Query(ge=0, le=_LAST)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 50,
) -> HistoryOut:
    """Newest first, each with what it changed."""
    return commands.policy_history(server.services, after=after, limit=limit).shown()


@router.get("/control/policy/{version}")
def find_policy_version(version: Annotated[int, Path(ge=0, le=_LAST)], server: Server) -> PolicyOut:
    return commands.find_policy(server.services, version).shown()
