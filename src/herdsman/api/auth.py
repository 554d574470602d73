"""Every request says who it is from before anything else of it is read; then the table of rights decides."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from herdsman.api.access import OPEN, authorise, open_to_all, require_harmless
from herdsman.api.body import announces_body
from herdsman.api.errors import refuse
from herdsman.api.state import ServerState
from herdsman.core.access import Caller
from herdsman.core.errors import (
    Forbidden,
    HerdsmanError,
    StoreMisconfigured,
    StoreUnavailable,
    TooLarge,
    TooMany,
    Unauthenticated,
)
from herdsman.core.model import WorkerId

_SCHEME = "bearer"
LONGEST_TOKEN = 512
_STATE = "caller"
PATIENCE = timedelta(seconds=2)
"""A scrape has a few seconds in all, and the metrics may wait for the database as well."""
_BEAT = "/heartbeat"


class Gate:
    """Nothing passes without a good token but what is open to all; not even the news that a path is unknown."""

    def __init__(self, app: ASGIApp, server: ServerState) -> None:
        self._app = app
        self._server = server
        # Not those of all requests: these may all wait for a database that is away.
        self._watchers = ThreadPoolExecutor(2, thread_name_prefix="watchers")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                if _is_beat(scope):
                    self._server.require_database()
                await self._check(scope)
            except HerdsmanError as error:
                await refuse(error, scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if not open_to_all(scope["method"], scope["path"]):
            scope.setdefault("state", {})[_STATE] = await self._caller(headers, scope)
        elif announces_body(headers):
            raise TooLarge("this path takes no body: send the request without one")

    async def _caller(self, headers: Headers, scope: Scope) -> Caller:
        secret, address = _bearer(headers), address_of(scope)
        known = self._server.authenticator.known(secret)
        if known is not None:
            return known
        kept = self._server.authenticator.kept(secret)
        if kept is None:
            return await run_in_threadpool(self._verify, secret, address)
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                verified = asyncio.get_running_loop().run_in_executor(
                    self._watchers, self._verify, secret, address
                )
                return await verified
        except (StoreUnavailable, StoreMisconfigured, TimeoutError):
            return kept

    def _verify(self, secret: str, address: str) -> Caller:
        """Who guesses too often is not even looked up; a token that was good before is never taken for a guess, and one
        that is new is let in beside others who guess."""
        authenticator, failures = self._server.authenticator, self._server.failures
        named = ""
        if not authenticator.met(secret):
            try:
                failures.check(address)
            except TooMany:
                named = authenticator.issued(secret) or ""
                if not named:
                    raise
                failures.check(address, named)
        try:
            return authenticator.verify(secret)
        except Unauthenticated:
            failures.note(address, named)
            raise


async def guard(request: Request) -> Caller | None:
    """A dependency of the whole app. None only where the route is open to all."""
    route = request.scope.get("route")
    assert isinstance(route, APIRoute), "only plain routes can be authorised"
    line = (request.method, route.path)
    if line in OPEN:
        return None
    caller: Caller = getattr(request.state, _STATE)
    authorise(caller, line)
    if request.app.state.server.safe_mode:
        require_harmless(line)
    return caller


async def caller(found: Annotated[Caller | None, Depends(guard)]) -> Caller:
    if found is None:
        raise Unauthenticated("this route has no caller")
    return found


Who = Annotated[Caller, Depends(caller)]


def own_worker(who: Caller, worker_id: str | None = None) -> WorkerId:
    """The worker that calls; `Forbidden` when the path names another (X2)."""
    if who.worker_id is None or worker_id not in (None, who.worker_id):
        raise Forbidden(f"the token is not that of worker {worker_id!r}")
    return who.worker_id


def _is_beat(scope: Scope) -> bool:
    return (
        scope["method"] == "POST" and scope["path"].startswith("/workers/") and scope["path"].endswith(_BEAT)
    )


def _bearer(headers: Headers) -> str:
    given = headers.getlist("authorization")
    if len(given) != 1:
        raise Unauthenticated("no token came: send the header Authorization: Bearer TOKEN")
    scheme, _, secret = given[0].partition(" ")
    if scheme.lower() != _SCHEME or not secret or len(secret) > LONGEST_TOKEN:
        raise Unauthenticated("no token came: send the header Authorization: Bearer TOKEN")
    return secret.strip()


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "?"
