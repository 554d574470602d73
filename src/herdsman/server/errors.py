"""Errors become answers here and nowhere else; each is a problem in JSON."""

import asyncio
import math
import time
from datetime import timedelta
from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive

from herdsman.errors import HerdsmanError, StoreMisconfigured, StoreUnavailable, Unauthenticated
from herdsman.wire import MEDIA_TYPE, Problem, problem, problem_of

log = structlog.get_logger()

MOST_DISCARDED = 65_536
_PATIENCE = timedelta(seconds=2)
_MOST_FIELDS = 20
LONGEST_STEP = 64
"""Of a field's name, which may be the caller's own invention."""


class Refused(Exception):
    """A request that HTTP itself has a word for, and none of our commands."""

    def __init__(self, status: HTTPStatus, code: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = problem(status, code, detail)


class _StoreFaults:
    """What is wrong with the database, in full: callers are not told. Logged rarely, since all of them meet it at once."""

    EVERY_S = 5.0

    def __init__(self) -> None:
        self._next = 0.0

    def log(self, error: HerdsmanError) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self.EVERY_S
            log.warning("api.store_fault", error=type(error).__name__, reason=str(error))


_faults = _StoreFaults()


def install(app: FastAPI) -> None:
    for kind in (HerdsmanError, Refused, RequestValidationError, HTTPException, UnicodeEncodeError):
        app.add_exception_handler(kind, _answer)


async def _answer(_request: Request, error: Exception) -> Response:
    answer = answer_to(error)
    if answer is None:
        raise error
    return answer


async def refusal(error: HerdsmanError | Refused, receive: Receive) -> Response:
    """Before the body has come. It is thrown away, or the line is closed after the answer."""
    answer = answer_to(error)
    assert answer is not None, error
    if not await _discard(receive):
        answer.headers["connection"] = "close"
    return answer


def answer_to(error: Exception) -> Response | None:
    """None for one that should not come this far: its words are for the log."""
    match error:
        case Refused():
            return problem_response(error.problem)
        case HerdsmanError():
            return _ours(error)
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return _http(error)
        case UnicodeEncodeError():
            said = "a text contains half of a surrogate pair, which is not valid text"
            return problem_response(problem(422, "invalid-request", said))
        case _:
            return None


def _ours(error: HerdsmanError) -> Response | None:
    if isinstance(error, StoreUnavailable | StoreMisconfigured):
        _faults.log(error)
    answer = problem_response(problem_of(error))
    wait: timedelta | None = getattr(error, "retry_after", None)
    if wait is not None:
        answer.headers["retry-after"] = str(max(1, math.ceil(wait.total_seconds())))
    if isinstance(error, Unauthenticated):
        answer.headers["www-authenticate"] = "Bearer"
    return None if answer.status_code == HTTPStatus.INTERNAL_SERVER_ERROR else answer


def problem_response(found: Problem) -> Response:
    return Response(found.model_dump_json(), status_code=found.status, media_type=MEDIA_TYPE)


def _invalid(error: RequestValidationError) -> Response:
    """Where and why, never what: a value may be a secret."""
    found = error.errors()[:_MOST_FIELDS]
    fields = tuple(
        {"field": ".".join(str(step)[:LONGEST_STEP] for step in each["loc"]), "message": str(each["msg"])}
        for each in found
    )
    said = "; ".join(f"{each['field']}: {each['message']}" for each in fields)
    told = problem(422, "invalid-request", f"the request is not as it must be: {said}")
    return problem_response(told.model_copy(update={"errors": fields}))


def _http(error: HTTPException) -> Response:
    """Those of the framework: no such path, no such method, a body that is no JSON."""
    status = HTTPStatus(error.status_code)
    code = status.phrase.lower().replace(" ", "-")
    answer = problem_response(problem(status, code, _DETAILS.get(status, str(error.detail))))
    answer.headers.update(error.headers or {})
    return answer


_DETAILS = {
    HTTPStatus.NOT_FOUND: "there is nothing at this path",
    HTTPStatus.METHOD_NOT_ALLOWED: "this path does not take this method",
}


async def _discard(receive: Receive) -> bool:
    """Whether all of the body could be thrown away: a client that still writes would not read our answer."""
    size = 0
    try:
        async with asyncio.timeout(_PATIENCE.total_seconds()):
            while size <= MOST_DISCARDED:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return True
    except TimeoutError:
        return False
    return False
