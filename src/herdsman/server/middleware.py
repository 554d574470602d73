"""What every request passes before its route."""

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


class ApiMiddleware:
    """What every request passes before its route: limits of its head, then authentication, so that unknown paths also
    answer 401. Adds headers for browsers to every answer, and answers what no handler expected with 500."""

    def __init__(self, app: ASGIApp, server: ServerState) -> None:
        self._app = app
        self._server = server
        self._hosts = LOOPBACK | {host.lower() for host in server.limits.hosts}
        # Not those of all requests: these may all wait for a database that is away.
        self._watchers = ThreadPoolExecutor(2, thread_name_prefix="watchers")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Probes and link checkers send HEAD: what is open to all answers it like GET, without the body.
        bodiless = scope["method"] == "HEAD" and open_to_all("GET", scope["path"])
        if bodiless:
            scope = {**scope, "method": "GET"}
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in _ANSWERS.items():
                    headers.setdefault(name, value)
            elif bodiless and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            try:
                await self._check(scope, Headers(scope=scope))
            except (HerdsmanError, Refused) as error:
                await refuse(error, scope, receive, answer)
                return
            await self._app(scope, receive, answer)
        except Exception:  # the outermost place: it is written down, and the client is told
            log.exception(
                "api.unexpected", method=scope.get("method"), path=getattr(scope.get("route"), "path", "?")
            )
            if begun:  # half an answer cannot be taken back; the line is cut
                raise
            await problem_response(_UNEXPECTED)(scope, receive, answer)

    async def _check(self, scope: Scope, headers: Headers) -> None:
        """Raises what the request is refused with; afterwards the scope has its caller."""
        limits = self._server.limits
        count, size = len(headers.raw), sum(len(name) + len(value) for name, value in headers.raw)
        if count > limits.headers or size > limits.header_bytes:
            raise Refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers-too-large",
                f"{count} headers with {size:,} bytes came, the limits are {limits.headers}"
                f" and {limits.header_bytes:,}",
            )
        given = headers.getlist("host")
        if len(given) != 1 or host_name(given[0]) not in self._hosts:
            raise Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "wrong-host",
                "this server is not called by that name: add it to the allowed hosts, or use another URL",
            )
        method, path = scope["method"], scope["path"]
        if method == "POST" and path.startswith("/workers/") and path.endswith("/heartbeat"):
            self._server.require_database()
        if not open_to_all(method, path):
            scope.setdefault("state", {})[CALLER] = await self._caller(headers, address_of(scope))
        elif headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            raise TooLarge("this path takes no body: send the request without one")

    async def _caller(self, headers: Headers, address: str) -> Caller:
        given = headers.getlist("authorization")
        scheme, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() != _SCHEME or not secret or len(secret) > LONGEST_TOKEN:
            raise Unauthenticated("no token came: send the header Authorization: Bearer TOKEN")
        secret = secret.strip()
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


def host_name(given: str) -> str:
    """Without the port: `[::1]:80` is `::1`."""
    if given.startswith("["):
        return given[1:].partition("]")[0].lower()
    return given.partition(":")[0].lower()
