"""Who is asking, what it may do, and how the server is set up."""

from fastapi import APIRouter

from herdsman.api.auth import Who
from herdsman.api.routes.measured import Measured
from herdsman.api.state import Server
from herdsman.api.verbs import verbs
from herdsman.settings import rows
from herdsman.wire.dashboard import MeOut, SettingOut, SettingsOut

router = APIRouter(route_class=Measured, tags=["about"])


@router.get("/me")
def who_am_i(who: Who, server: Server) -> MeOut:
    """The caller, as its token says, and what it may do."""
    return MeOut(
        name=who.name or who.token_id,
        role=who.role,
        agent=who.agent,
        can=verbs(who.role, safe_mode=server.safe_mode),
    )


@router.get("/settings")
def list_settings(_who: Who, server: Server) -> SettingsOut:
    """Every setting with its origin and its default; secrets stay hidden."""
    found = () if server.settings is None else rows(server.settings)
    return SettingsOut(
        settings=tuple(
            SettingOut(
                name=row.name,
                group=row.group,
                value=row.value,
                default=row.default,
                origin=row.origin,
                description=row.description,
            )
            for row in found
        )
    )
