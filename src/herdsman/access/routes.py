"""Tokens, for admins; who is asking, what it may do, and how the server is set up."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from herdsman.access import commands
from herdsman.access.rules import Role
from herdsman.fleet.wire import MeOut, SettingOut, SettingsOut
from herdsman.server.access import verbs
from herdsman.server.request import ApiRoute, Who
from herdsman.server.state import Server
from herdsman.settings import rows
from herdsman.wire import Duration, Name, Reply, Request, core_fields

router = APIRouter(route_class=ApiRoute)


class TokenIn(Request):
    role: Role
    name: Name
    agent: Name | None = Field(default=None, description="Of a submitter: whose jobs; without it, `name`.")
    expires_in_seconds: Duration | None = None


class TokenOut(Reply):
    id: str
    role: str
    name: str
    agent: str | None
    worker_id: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


class NewTokenOut(TokenOut):
    token: str = Field(description="For the header `Authorization: Bearer`. It is shown once.")


class TokensOut(Reply):
    tokens: tuple[TokenOut, ...]
    next: str | None


@router.get("/tokens", tags=["tokens"])
def list_tokens(
    server: Server,
    after: Annotated[str | None, Query(max_length=32)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
) -> TokensOut:
    found = commands.list_tokens(server.services, after=after, limit=limit)
    return TokensOut(
        tokens=tuple(TokenOut.of(each) for each in found), next=found[-1].id if len(found) == limit else None
    )


@router.post("/tokens", status_code=201, tags=["tokens"])
def create_token(body: TokenIn, who: Who, server: Server) -> NewTokenOut:
    issued = commands.create_token(server.services, server.keyring, who=who.who, **core_fields(body))
    return NewTokenOut(**dict(TokenOut.of(issued.token)), token=issued.secret)


@router.delete("/tokens/{token_id}", tags=["tokens"])
def revoke_token(token_id: str, who: Who, server: Server) -> TokenOut:
    revoked = commands.revoke_token(server.services, token_id, who=who.who)
    server.authenticator.forget(token_id)
    return TokenOut.of(revoked)


@router.get("/me", tags=["about"])
def who_am_i(who: Who, server: Server) -> MeOut:
    """The caller, as its token says, and what it may do."""
    return MeOut(
        name=who.name or who.token_id, role=who.role, agent=who.agent, can=verbs(who.role, safe_mode=server.safe_mode)
    )


@router.get("/settings", tags=["about"])
def list_settings(_who: Who, server: Server) -> SettingsOut:
    """Every setting with its origin and its default; secrets stay hidden."""
    found = () if server.settings is None else rows(server.settings)
    return SettingsOut(settings=tuple(SettingOut.of(row) for row in found))
