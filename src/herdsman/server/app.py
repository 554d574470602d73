"""The app: its routes, its middleware, its OpenAPI description, and how errors leave it."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from herdsman import __version__
from herdsman.access import routes as access_routes
from herdsman.access.rules import Caller
from herdsman.errors import HerdsmanError, StoreMisconfigured, StoreUnavailable, TooLarge, TooMany, Unauthenticated
from herdsman.explain import routes as explain_routes
from herdsman.fleet import routes as fleet_routes
from herdsman.jobs import routes as jobs_routes
from herdsman.leases import routes as leases_routes
from herdsman.limits import routes as limits_routes
from herdsman.pools import routes as pools_routes
from herdsman.server import errors
from herdsman.server.access import MATRIX, OPEN, Line
from herdsman.server.errors import Refused, problem_response, refusal
from herdsman.server.request import CALLER, ApiRoute, BusyRoute, guard
from herdsman.server.routes import dashboard, events, files, health
from herdsman.server.state import ServerState
from herdsman.wire import MEDIA_TYPE, VERSION_HEADER, Problem, problem

ROUTERS: tuple[APIRouter, ...] = (
    jobs_routes.busy_router,
    jobs_routes.router,
    explain_routes.router,
    files.router,
    jobs_routes.busy_worker_router,
    jobs_routes.worker_router,
    pools_routes.router,  # before the workers: `pool` is not one of them
    fleet_routes.busy_router,
    fleet_routes.workers_router,
    leases_routes.router,
    events.router,
    fleet_routes.router,
    limits_routes.router,
    health.router,
    access_routes.router,
    dashboard.router,
)

DESCRIPTION = "Runs GPU jobs to completion on a fleet that it grows, heals and shrinks by itself."


def create_app(server: ServerState, *, routers: Sequence[APIRouter] = ROUTERS, like: FastAPI | None = None) -> FastAPI:
    """Fails when a route has no line in the table of rights, or a line no route.

    With `like`, an app of this process, its routes are shared: it takes FastAPI a quarter of a second to build them.
    """
    app = described(routers)
    if like is not None:
        app.router = like.router
    app.state.server = server
    errors.install(app)
    found = [context.original_route for context in iter_route_contexts(app.routes)]
    busy = {(method, each.path): each for each in found if isinstance(each, BusyRoute) for method in each.methods or ()}
    app.add_middleware(ApiMiddleware, server=server, busy=busy)
    check_complete(app)
    return app


def described(routers: Sequence[APIRouter] = ROUTERS) -> FastAPI:
    """The routes alone: enough to describe them, with nothing behind them."""
    app = Described(
        title="Herdsman",
        version=__version__,
        description=DESCRIPTION,
        # Their pages load scripts from elsewhere; the description itself is a route of ours, with a token.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[Depends(guard)],
        # The function's own name: short in generated clients, and the same on every machine.
        generate_unique_id_function=lambda route: route.name,
    )
    for router in (*routers, _about):
        app.include_router(router)
    return app


_about = APIRouter(tags=["about"])


@_about.get("/openapi.json")
async def openapi(request: Request) -> dict[str, Any]:
    """This description."""
    found: dict[str, Any] = request.app.openapi()
    return found


REFUSALS: dict[int, str] = {
    401: "No good token came.",
    403: "The token is good, but not for this.",
    404: "There is no such thing, or it is not yours.",
    408: "The body did not arrive in time.",
    409: "It does not fit what is there: `type` says how.",
    413: "The body is too large.",
    415: "The body is not plain JSON.",
    421: "The server is not called by that name.",
    422: "Something in the request is not as it must be: `detail` says what.",
    429: "A limit is reached, `code` says which: wait as long as `Retry-After` says.",
    431: "The headers are too many, or too large.",
    503: "The database is away, or no more is taken in from anybody now: send it again later.",
}
"""One line for each status, shared by all routes."""

_PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}
_BEARER = "token"


class Described(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """As FastAPI makes it, with our problems and tokens instead of its own."""
        if self.openapi_schema is not None:
            return self.openapi_schema
        shown = super().openapi()
        parts = shown["components"]
        parts["schemas"]["Problem"] = Problem.model_json_schema()
        for unused in ("HTTPValidationError", "ValidationError"):
            parts["schemas"].pop(unused, None)
        parts["responses"] = {
            str(status): {"description": said, "content": {MEDIA_TYPE: _PROBLEM}} for status, said in REFUSALS.items()
        }
        parts["securitySchemes"] = {_BEARER: {"type": "http", "scheme": "bearer"}}
        for path, operations in shown["paths"].items():
            for method, operation in operations.items():
                statuses = [408, 413, 415, 421, 422, 431]
                if (method.upper(), path) not in OPEN:
                    operation["security"] = [{_BEARER: []}]
                    statuses += (401, 403, 429, 503)
                if method != "get" or "{" in path:
                    statuses += (404, 409)
                answers = operation["responses"]
                answers.pop("422", None)  # FastAPI's own, which is not the one that is sent
                for status in map(str, sorted(statuses)):
                    answers.setdefault(status, {"$ref": f"#/components/responses/{status}"})
                for status, answer in answers.items():
                    if status >= "400" and "$ref" not in answer:
                        answer.setdefault("content", {})[MEDIA_TYPE] = _PROBLEM
        return shown


def served(app: FastAPI) -> set[Line]:
    """Every route of the app; what has no methods, such as a mounted app, is a line that no table has."""
    return {
        (method, context.path or "?")
        for context in iter_route_contexts(app.routes)
        for method in context.methods or {"?"}
    }


def check_complete(app: FastAPI) -> None:
    """A program with a hole in its table must not start."""
    routes = served(app)
    unlisted, unserved = routes - MATRIX.keys(), MATRIX.keys() - routes
    assert not unlisted, f"routes that the table of rights lacks: {sorted(unlisted)}"
    assert not unserved, f"lines of the table of rights without a route: {sorted(unserved)}"
    found = [context.original_route for context in iter_route_contexts(app.routes)]
    with_body = [each for each in found if isinstance(each, APIRoute) and each.body_field is not None]
    careless = [each.path for each in with_body if not isinstance(each, ApiRoute)]
    assert not careless, f"routes that would read a body before they know who sends it: {careless}"


log = structlog.get_logger()

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ANSWERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    VERSION_HEADER: __version__,
}
_HEADERS = (
    (b"content-type", b"application/json"),
    *((name.encode(), value.encode()) for name, value in _ANSWERS.items()),
)
_SCHEME = "bearer"
LONGEST_TOKEN = 512
PATIENCE = timedelta(seconds=2)
"""A scrape has a few seconds in all, and the metrics may wait for the database as well."""
_UNEXPECTED = problem(500, "internal", "something went wrong here; the log of the server says what")


class ApiMiddleware:
    """What every request passes before its route: limits of its head, then authentication, so that unknown paths also
    answer 401. Adds headers for browsers to every answer, and answers what no handler expected with 500."""

    def __init__(self, app: ASGIApp, server: ServerState, busy: Mapping[Line, BusyRoute]) -> None:
        self._app = app
        self._server = server
        self._hosts = LOOPBACK | {host.lower() for host in server.limits.hosts}
        # Not those of all requests: these may all wait for a database that is away.
        self._watchers = ThreadPoolExecutor(2, thread_name_prefix="watchers")
        self._busy = busy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, path = scope["method"], scope["path"]
        worker_id = path[len("/workers/") :].partition("/")[0] if path.startswith("/workers/") else ""
        template = path.replace(f"/{worker_id}/", "/{worker_id}/", 1) if worker_id else path
        busy = self._busy.get((method, template))
        is_open = method in ("GET", "HEAD") and (("GET", path) in OPEN or path.startswith("/assets/"))
        # Probes and link checkers send HEAD: what is open to all answers it like GET, without the body.
        bodiless = is_open and method == "HEAD"
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
                await self._check(scope, Headers(scope=scope), is_open=is_open)
            except (HerdsmanError, Refused) as error:
                refused = await refusal(error, receive)
                await refused(scope, receive, answer)
                return
            if busy is None:
                await self._app(scope, receive, answer)
                return
            found = await busy.serve(scope, receive, self._server, worker_id)
            if isinstance(found, Response):
                await found(scope, receive, answer)
                return
            begun = True
            await send(
                {
                    "type": "http.response.start",
                    "status": found.status,
                    "headers": [*_HEADERS, (b"content-length", b"%d" % len(found.body)), *found.headers],
                }
            )
            await send({"type": "http.response.body", "body": found.body})
        except Exception:  # the outermost place: it is written down, and the client is told
            log.exception("api.unexpected", method=scope.get("method"), path=getattr(scope.get("route"), "path", "?"))
            if begun:  # half an answer cannot be taken back; the line is cut
                raise
            await problem_response(_UNEXPECTED)(scope, receive, answer)

    async def _check(self, scope: Scope, headers: Headers, *, is_open: bool) -> None:
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
        host = given[0].lower() if len(given) == 1 else ""
        # Without the port: `[::1]:80` is `::1`.
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if len(given) != 1 or host not in self._hosts:
            raise Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "wrong-host",
                "this server is not called by that name: add it to the allowed hosts, or use another URL",
            )
        method, path = scope["method"], scope["path"]
        if method == "POST" and path.startswith("/workers/") and path.endswith("/heartbeat"):
            self._server.require_database()
        if is_open:
            if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
                raise TooLarge("this path takes no body: send the request without one")
            return
        given = headers.getlist("authorization")
        scheme, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() != _SCHEME or not secret or len(secret) > LONGEST_TOKEN:
            raise Unauthenticated("no token came: send the header Authorization: Bearer TOKEN")
        secret, address = secret.strip(), str(scope["client"][0]) if scope.get("client") else "?"
        caller = self._server.authenticator.known(secret) or await self._verified(secret, address)
        scope.setdefault("state", {})[CALLER] = caller

    async def _verified(self, secret: str, address: str) -> Caller:
        """Asks the database. While that is away, a token that may only watch is taken as it was verified last."""
        kept = self._server.authenticator.kept(secret)
        if kept is None:
            return await run_in_threadpool(self._verify, secret, address)
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                verified = asyncio.get_running_loop().run_in_executor(self._watchers, self._verify, secret, address)
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
