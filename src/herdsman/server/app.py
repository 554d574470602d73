"""The app: its routes, its middleware, its OpenAPI description, and how errors leave it."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.routing import APIRoute, iter_route_contexts

from herdsman import __version__
from herdsman.server import errors
from herdsman.server.access import MATRIX, OPEN, Line
from herdsman.server.middleware import ApiMiddleware
from herdsman.server.request import ApiRoute, guard
from herdsman.server.routes import ROUTERS
from herdsman.server.state import ServerState
from herdsman.wire import MEDIA_TYPE, Problem

DESCRIPTION = "Runs GPU jobs to completion on a fleet that it grows, heals and shrinks by itself."


def create_app(
    server: ServerState, *, routers: Sequence[APIRouter] = ROUTERS, like: FastAPI | None = None
) -> FastAPI:
    """Fails when a route has no line in the table of rights, or a line no route.

    With `like`, an app of this process, its routes are shared: it takes FastAPI a quarter of a second to build them.
    """
    app = described(routers)
    if like is not None:
        app.router = like.router
    app.state.server = server
    errors.install(app)
    app.add_middleware(ApiMiddleware, server=server)
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
        if self.openapi_schema is None:
            _complete(super().openapi())
        assert self.openapi_schema is not None
        return self.openapi_schema


def _complete(shown: dict[str, Any]) -> None:
    parts = shown["components"]
    parts["schemas"]["Problem"] = Problem.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        parts["schemas"].pop(unused, None)
    parts["responses"] = {
        str(status): {"description": said, "content": {MEDIA_TYPE: _PROBLEM}}
        for status, said in REFUSALS.items()
    }
    parts["securitySchemes"] = {_BEARER: {"type": "http", "scheme": "bearer"}}
    for path, operations in shown["paths"].items():
        for method, operation in operations.items():
            _complete_operation(path, method, operation)


def _complete_operation(path: str, method: str, operation: dict[str, Any]) -> None:
    if not _open(path, method):
        operation["security"] = [{_BEARER: []}]
    answers = operation["responses"]
    answers.pop("422", None)  # FastAPI's own, which is not the one that is sent
    statuses = [408, 413, 415, 421, 422, 431]
    if not _open(path, method):
        statuses += (401, 403, 429, 503)
    if method != "get" or "{" in path:
        statuses += (404, 409)
    for status in map(str, sorted(statuses)):
        answers.setdefault(status, {"$ref": f"#/components/responses/{status}"})
    for status, answer in answers.items():
        if status >= "400" and "$ref" not in answer:
            answer.setdefault("content", {})[MEDIA_TYPE] = _PROBLEM


def _open(path: str, method: str) -> bool:
    return (method.upper(), path) in OPEN


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
