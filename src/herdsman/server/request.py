"""What the routes share: who calls, bodies within their limits, and the route class that counts and times."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any, cast

from fastapi import Depends, Request, Response
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from herdsman.access.rules import Caller
from herdsman.errors import Forbidden, HerdsmanError, InvalidRequest, NotFound, TooLarge, Unauthenticated
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.commands import find_job
from herdsman.jobs.model import Job
from herdsman.json_text import MOST_PARTS, decode
from herdsman.server.access import OPEN, authorise, require_harmless
from herdsman.server.errors import Refused, refusal
from herdsman.server.limits import Limits
from herdsman.server.state import ServerState
from herdsman.wire import MEDIA_TYPE, problem, problem_of

CALLER = "caller"


async def guard(request: Request) -> Caller | None:
    """A dependency of the whole app. None only where the route is open to all."""
    route = request.scope.get("route")
    assert isinstance(route, APIRoute), "only plain routes can be authorised"
    line = (request.method, route.path)
    if line in OPEN:
        return None
    caller: Caller = getattr(request.state, CALLER)
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


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "?"


MANY = frozenset({"/jobs/submit/batch", "/jobs/finish", "/workers/{worker_id}/heartbeat"})
"""Routes on which one request speaks of many jobs."""
MOST_PARTS_OF_MANY = 4_000_000
SMALL = 16_384
"""Up to here a body is taken apart at once: a thread would cost more than it saves."""

_MOST_MISTAKES = 100
_MOST_DIGITS = 18
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json\s*(?:;|$)", re.IGNORECASE)


class WithBody(Request):
    """A request whose body has been read, and made into what its route asks for."""

    def __init__(self, request: Request, body: bytes, value: object) -> None:
        super().__init__(request.scope, request.receive)
        self._read = body
        self._value = value

    async def body(self) -> bytes:
        return self._read

    async def json(self) -> Any:
        return self._value


async def read(request: Request, limits: Limits, *, many: bool) -> bytes:
    """All of it, or `TooLarge` or `Refused` before the rest has come."""
    headers, limit = request.headers, limits.large_body_bytes if many else limits.body_bytes
    declared = headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > _MOST_DIGITS or int(declared) > limit:
        raise _too_large(limit)
    if int(declared) > 0 or "transfer-encoding" in headers:
        _check_kind(headers)
    deadline = limits.body_deadline.total_seconds()
    try:
        async with asyncio.timeout(deadline):
            return await _collect(request.receive, limit)
    except TimeoutError as error:
        said = f"the body did not arrive within {deadline:g} seconds"
        raise Refused(HTTPStatus.REQUEST_TIMEOUT, "too-slow", said) from error


async def parse(body: bytes, wanted: TypeAdapter[Any], *, many: bool, at_once: asyncio.Semaphore) -> object:
    """`at_once` bounds the threads that are busy with this; the event loop has to share the processor with them."""
    if len(body) <= SMALL:
        return _parsed(body, wanted, many=many)
    async with at_once:
        return await run_in_threadpool(_parsed, body, wanted, many=many)


def _parsed(body: bytes, wanted: TypeAdapter[Any], *, many: bool) -> object:
    value = decode(body, what="the body", most=MOST_PARTS_OF_MANY if many else MOST_PARTS)
    try:
        return wanted.validate_python(value)
    except ValidationError as error:
        # Each mistake becomes an object before the first can be read, and nobody reads thousands.
        if (count := error.error_count()) > _MOST_MISTAKES:
            said = f"the request is not as it must be: {count:,} fields are wrong or not known here"
            raise InvalidRequest(said) from None
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in found]) from error


async def _collect(receive: Receive, limit: int) -> bytes:
    parts, size = [b""], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return b"".join(parts)


def _check_kind(headers: Headers) -> None:
    if headers.get("content-encoding", "identity").lower() != "identity":
        said = "compressed bodies are not taken: send it as it is"
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-encoding", said)
    if not _JSON.match(headers.get("content-type", "")):
        said = "the body must be JSON: send the header Content-Type: application/json"
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-type", said)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit:,} bytes: store the data elsewhere and pass a reference")


Handler = Callable[[Request], Awaitable[Response]]


class ApiRoute(APIRoute):
    """Counts and times its requests, and reads a body only from a caller who may send it.

    Series are named by the template of the path, never by the path itself: their number has a limit.
    """

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


def refused(status: int, code: str, detail: str) -> JSONResponse:
    """For what is no error of ours: the caller came at the wrong time, or to the wrong replica."""
    return JSONResponse(problem(status, code, detail).model_dump(), status, media_type=MEDIA_TYPE)


def visible_job(server: ServerState, job_id: str, who: Caller) -> Job:
    """To a submitter, the jobs of others do not exist (X2)."""
    job = find_job(server.services, JobId(job_id))
    if not who.sees(job.agent):
        raise NotFound(f"there is no job {job.job_id!r}")
    return job
