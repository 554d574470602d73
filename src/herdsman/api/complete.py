"""That the table of rights has a line for each route, and no other."""

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from herdsman.api.access import MATRIX, Line
from herdsman.api.routes.measured import Measured


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
    careless = [each.path for each in with_body if not isinstance(each, Measured)]
    assert not careless, f"routes that would read a body before they know who sends it: {careless}"
