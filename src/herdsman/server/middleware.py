"""What every request passes before its route, from the outside in: header limits, errors, HEAD, authentication."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http import HTTPStatus

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from herdsman import __version__
from herdsman.access.rules import Caller
from herdsman.errors import (
    HerdsmanError,
    StoreMisconfigured,
    StoreUnavailable,
    TooLarge,
    TooMany,
    Unauthenticated,
)
from herdsman.server.access import open_to_all
from herdsman.server.errors import Refused, problem_response, refuse
from herdsman.server.limits import Limits
from herdsman.server.request import CALLER, address_of
from herdsman.server.state import ServerState
from herdsman.wire import VERSION_HEADER, problem

log = structlog.get_logger()

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ANSWERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    VERSION_HEADER: __version__,
}
_SCHEME = "bearer"
LONGEST_TOKEN = 512
PATIENCE = timedelta(seconds=2)
"""A scrape has a few seconds in all, and the metrics may wait for the database as well."""
_UNEXPECTED = problem(500, "internal", "something went wrong here; the log of the server says what")


class HeaderLimitMiddleware:
    """Checks the host and the size of the headers before anything else; adds headers for browsers to every answer."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._hosts = LOOPBACK | {host.lower() for host in limits.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in _ANSWERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(Headers(scope=scope))
        except Refused as error:
            await refuse(error, scope, receive, answer)
            return
        await self._app(scope, receive, answer)

    def _check(self, headers: Headers) -> None:
        count, size = len(headers.raw), sum(len(name) + len(value) for name, value in headers.raw)
        if count > self._limits.headers or size > self._limits.header_bytes:
            raise Refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers-too-large",
                f"{count} headers with {size:,} bytes came, the limits are {self._limits.headers}"
                f" and {self._limits.header_bytes:,}",
            )
        given = headers.getlist("host")
        if len(given) != 1 or host_name(given[0]) not in self._hosts:
            raise Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "wrong-host",
                "this server is not called by that name: add it to the allowed hosts, or use another URL",
            )


def host_name(given: str) -> str:
    """Without the port: `[::1]:80` is `::1`."""
    if given.startswith("["):
        return given[1:].partition("]")[0].lower()
    return given.partition(":")[0].lower()


class ErrorMiddleware:
    """Logs exceptions that no handler expected, and answers them with 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except Exception:  # the outermost place: it is written down, and the client is told
            log.exception(
                "api.unexpected", method=scope.get("method"), path=getattr(scope.get("route"), "path", "?")
            )
            if begun:  # half an answer cannot be taken back; the line is cut
                raise
            await problem_response(_UNEXPECTED)(scope, receive, send)


class HeadMiddleware:
    """Answers HEAD like GET, without the body, on the paths that are open to all: probes and link checkers use it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or not open_to_all("GET", scope["path"]):
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            body = message["type"] == "http.response.body"
            await send({**message, "body": b""} if body else message)

        await self._app({**scope, "method": "GET"}, receive, send_head)


class AuthMiddleware:
    """Authenticates every request before routing, so that unknown paths also answer 401."""

    def __init__(self, app: ASGIApp, server: ServerState) -> None:
        self._app = app
        self._server = server
        # Not those of all requests: these may all wait for a database that is away.
        self._watchers = ThreadPoolExecutor(2, thread_name_prefix="watchers")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                await self._authenticate(scope)
            except HerdsmanError as error:
                await refuse(error, scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _authenticate(self, scope: Scope) -> None:
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        if method == "POST" and path.startswith("/workers/") and path.endswith("/heartbeat"):
            self._server.require_database()
        if not open_to_all(method, path):
            scope.setdefault("state", {})[CALLER] = await self._caller(headers, scope)
        elif headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
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
        """Rate-limits failed logins per address. Tokens that authenticated before are exempt, and each token that
        exists has attempts of its own."""
        authenticator, throttle = self._server.authenticator, self._server.login_throttle
        named = ""
        if not authenticator.met(secret):
            try:
                throttle.check(address)
            except TooMany:
                named = authenticator.issued(secret) or ""
                if not named:
                    raise
                throttle.check(address, named)
        try:
            return authenticator.verify(secret)
        except Unauthenticated:
            throttle.note(address, named)
            raise


def _bearer(headers: Headers) -> str:
    given = headers.getlist("authorization")
    if len(given) != 1:
        raise Unauthenticated("no token came: send the header Authorization: Bearer TOKEN")
    scheme, _, secret = given[0].partition(" ")
    if scheme.lower() != _SCHEME or not secret or len(secret) > LONGEST_TOKEN:
        raise Unauthenticated("no token came: send the header Authorization: Bearer TOKEN")
    return secret.strip()
