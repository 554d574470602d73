"""Routes that are counted and timed, and that read a body only from those who may send it."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from fastapi import Request, Response
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.requests import ClientDisconnect

from herdsman.api.auth import guard
from herdsman.api.body import MANY, WithBody, parse, read
from herdsman.api.errors import Refused, refusal
from herdsman.api.state import ServerState
from herdsman.core.errors import HerdsmanError
from herdsman.wire.problems import problem_of

Handler = Callable[[Request], Awaitable[Response]]


class Measured(APIRoute):
    """By the template of the path, never by the path itself: the number of series has a limit."""

    def get_route_handler(self) -> Any:
        handle = self._after_body(super().get_route_handler())

        async def measured(request: Request) -> Response:
            began, status = time.monotonic(), 500
            try:
                response = await handle(request)
            except Exception as error:
                status = _status(error)
                raise
            else:
                status = response.status_code
                return response
            finally:
                took = time.monotonic() - began
                server: ServerState = request.app.state.server
                server.metrics.answered(request.method, self.path, status, took)

        return measured

    def _after_body(self, handle: Handler) -> Handler:
        """The framework would read the body first, on the event loop, and look at the caller afterwards."""
        field, many = self.body_field, self.path in MANY
        if field is None:
            return handle
        wanted = TypeAdapter[Any](cast("Any", field.field_info.annotation))

        async def handle_with_body(request: Request) -> Response:
            server: ServerState = request.app.state.server
            try:
                await guard(request)
                body = await read(request, server.limits, many=many)
            except (HerdsmanError, Refused) as error:
                return await refusal(error, request.receive)
            except ClientDisconnect:
                return Response(status_code=400)  # nobody is there to read it
            value = None
            if body:
                value = await parse(body, wanted, many=many, at_once=server.parsing)
            return await handle(WithBody(request, body, value))

        return handle_with_body


def _status(error: Exception) -> int:
    match error:
        case HerdsmanError():
            return problem_of(error).status
        case RequestValidationError():
            return 422
        case HTTPException():
            return error.status_code
        case _:
            return 500
