"""Routes that are counted and timed."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.routing import APIRoute

from herdsman.api.routes.desk import desk_of
from herdsman.core.errors import HerdsmanError
from herdsman.wire.problems import problem_of

Handler = Callable[[Request], Awaitable[Response]]


class Measured(APIRoute):
    """By the template of the path, never by the path itself: the number of series has a limit."""

    def get_route_handler(self) -> Any:
        handle: Handler = super().get_route_handler()

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
                desk_of(request).metrics.answered(request.method, self.path, status, took)

        return measured


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
