"""Tokens, for admins. The secret of a new one is in the answer and nowhere else."""

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from herdsman.api.auth import Who
from herdsman.api.routes.measured import Measured
from herdsman.api.state import Server
from herdsman.control.commands import tokens as commands
from herdsman.core.access import Role, Token
from herdsman.wire.model import Duration, Name, Reply, Request

router = APIRouter(prefix="/tokens", route_class=Measured, tags=["tokens"])


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

    @staticmethod
    def of(token: Token) -> "TokenOut":
        return TokenOut(**_shared(token))


class NewTokenOut(TokenOut):
    token: str = Field(description="For the header `Authorization: Bearer`. It is shown once.")


class TokensOut(Reply):
    tokens: tuple[TokenOut, ...]
    next: str | None


@router.get("")
def list_tokens(
    server: Server,
    after: Annotated[str | None, Query(max_length=32)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
) -> TokensOut:
    found = commands.list_tokens(server.services, after=after, limit=limit)
    return TokensOut(
        tokens=tuple(TokenOut.of(each) for each in found),
        next=found[-1].id if len(found) == limit else None,
    )


@router.post("", status_code=201)
def create_token(body: TokenIn, who: Who, server: Server) -> NewTokenOut:
    life = None if body.expires_in_seconds is None else timedelta(seconds=body.expires_in_seconds)
    issued = commands.create_token(
        server.services,
        server.keyring,
        role=body.role,
        name=body.name,
        agent=body.agent,
        expires_in=life,
        who=who.who,
    )
    return NewTokenOut(**_shared(issued.token), token=issued.secret)


@router.delete("/{token_id}")
def revoke_token(token_id: str, who: Who, server: Server) -> TokenOut:
    revoked = commands.revoke_token(server.services, token_id, who=who.who)
    server.authenticator.forget(token_id)
    return TokenOut.of(revoked)


def _shared(token: Token) -> dict[str, Any]:
    return {field: getattr(token, field) for field in TokenOut.model_fields}
