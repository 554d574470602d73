"""The app: its routes, what stands before them, and how errors leave it."""

from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from herdsman import __version__
from herdsman.api import errors
from herdsman.api.auth import Gate, guard
from herdsman.api.bodiless import Bodiless
from herdsman.api.complete import check_complete
from herdsman.api.description import Described
from herdsman.api.limits import Heads
from herdsman.api.routes import ROUTERS
from herdsman.api.state import ServerState
from herdsman.core.errors import InvalidRequest

DESCRIPTION = "Runs GPU jobs to completion on a fleet that it grows, heals and shrinks by itself."


def create_app(server: ServerState, *, routers: Sequence[APIRouter] = ROUTERS) -> FastAPI:
    """Fails when a route has no line in the table of rights, or a line no route."""
    app = described(routers)
    app.state.server = server
    errors.install(app)
    # The last one added is the first to see a request.
    app.add_middleware(Gate, server=server)
    app.add_middleware(Bodiless)
    app.add_middleware(errors.Net)
    app.add_middleware(Heads, limits=server.limits)
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
        dependencies=[Depends(guard), Depends(check_query)],
        generate_unique_id_function=_operation,
    )
    for router in (*routers, _about):
        app.include_router(router)
    return app


async def check_query(request: Request) -> None:
    """A filter that is misspelt would match everything, and what follows may end all of it."""
    if not request.query_params:
        return
    route = request.scope["route"]
    known = dict(_query_of(route.dependant))
    for name in request.query_params:
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes none"
            raise InvalidRequest(
                f"there is no query parameter {name[: errors.LONGEST_STEP]!r}: {request.method} {route.path} {takes}"
            )
        if not known[name] and len(request.query_params.getlist(name)) > 1:
            raise InvalidRequest(f"the query parameter {name!r} came more than once: give it one value")


def _query_of(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """The parameters by name, and whether each may be repeated."""
    for field in dependant.query_params:
        kind = field.field_info.annotation
        yield field.alias, list in map(get_origin, (kind, *get_args(kind)))
    for each in dependant.dependencies:
        yield from _query_of(each)


def _operation(route: APIRoute) -> str:
    """The function's own name: short in generated clients, and the same on every machine."""
    return route.name


_about = APIRouter(tags=["about"])


@_about.get("/openapi.json")
async def openapi(request: Request) -> dict[str, Any]:
    """This description."""
    found: dict[str, Any] = request.app.openapi()
    return found
