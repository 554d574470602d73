"""What the routes share: who calls, bodies within their limits, and the route class that counts and times."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Annotated, Any, cast, get_args, get_origin

from fastapi import Depends, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from herdsman.access.rules import Caller
from herdsman.errors import Forbidden, HerdsmanError, InvalidRequest, NotFound, TooLarge, Unauthenticated
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import Job
from herdsman.jobs.sql import get_job
from herdsman.json_text import MOST_PARTS, decode
from herdsman.server.access import OPEN, authorise, require_harmless
from herdsman.server.errors import LONGEST_STEP, Refused, refusal
from herdsman.server.limits import Limits
from herdsman.server.state import ServerState
from herdsman.wire import MEDIA_TYPE, problem, problem_of

CALLER = "caller"


async def guard(request: Request) -> Caller | None:
    """A dependency of the whole app: rights, and the names of query parameters. None where the route is open to all."""
    route = request.scope.get("route")
    assert isinstance(route, APIRoute), "only plain routes can be authorised"
    line = (request.method, route.path)
    found: Caller | None = None
    if line not in OPEN:
        found = cast("Caller", getattr(request.state, CALLER))
        authorise(found, line)
        if request.app.state.server.safe_mode:
            require_harmless(line)
    if request.query_params:
        _check_query(request, route)
    return found


def _check_query(request: Request, route: APIRoute) -> None:
    """A filter that is misspelt would match everything, and what follows may end all of it."""
    known = dict(_query_of(route.dependant))
    for name in request.query_params:
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes none"
            raise InvalidRequest(
                f"there is no query parameter {name[:LONGEST_STEP]!r}: {request.method} {route.path} {takes}"
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
    """All of the body, or `TooLarge` or `Refused` before the rest has come."""
    headers, limit = request.headers, limits.large_body_bytes if many else limits.body_bytes
    declared = headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > _MOST_DIGITS or int(declared) > limit:
        raise _too_large(limit)
    if int(declared) > 0 or "transfer-encoding" in headers:
        if headers.get("content-encoding", "identity").lower() != "identity":
            said = "compressed bodies are not taken: send it as it is"
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-encoding", said)
        if not _JSON.match(headers.get("content-type", "")):
            said = "the body must be JSON: send the header Content-Type: application/json"
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-type", said)
    deadline = limits.body_deadline.total_seconds()
    parts, size, more = [b""], 0, True
    try:
        async with asyncio.timeout(deadline):
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise _too_large(limit)
                more = message.get("more_body", False)
    except TimeoutError as error:
        said = f"the body did not arrive within {deadline:g} seconds"
        raise Refused(HTTPStatus.REQUEST_TIMEOUT, "too-slow", said) from error
    return b"".join(parts)


def parse(body: bytes, wanted: TypeAdapter[Any], *, many: bool) -> object:
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


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit:,} bytes: store the data elsewhere and pass a reference")


class ApiRoute(APIRoute):
    """Counts and times its requests, and reads a body only from a caller who may send it.

    Series are named by the template of the path, never by the path itself: their number has a limit.
    """

    def get_route_handler(self) -> Any:
        handle: Callable[[Request], Awaitable[Response]] = super().get_route_handler()
        field, many = self.body_field, self.path in MANY
        wanted = None if field is None else TypeAdapter[Any](cast("Any", field.field_info.annotation))

        async def with_body(request: Request, wanted: TypeAdapter[Any]) -> Response:
            """The framework would read the body first, on the event loop, and look at the caller afterwards."""
            server: ServerState = request.app.state.server
            try:
                await guard(request)
                body = await read(request, server.limits, many=many)
            except (HerdsmanError, Refused) as error:
                return await refusal(error, request.receive)
            except ClientDisconnect:
                return Response(status_code=400)  # nobody is there to read it
            value = None
            if len(body) > SMALL:
                async with server.parsing:
                    value = await run_in_threadpool(parse, body, wanted, many=many)
            elif body:
                value = parse(body, wanted, many=many)
            return await handle(WithBody(request, body, value))

        async def measured(request: Request) -> Response:
            began, status = time.monotonic(), 500
            try:
                response = await (handle(request) if wanted is None else with_body(request, wanted))
            except Exception as error:
                status = _status(error)
                raise
            else:
                status = response.status_code
                return response
            finally:
                server: ServerState = request.app.state.server
                server.metrics.answered(request.method, self.path, status, time.monotonic() - began)

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


def refused(status: int, code: str, detail: str) -> JSONResponse:
    """For what is no error of ours: the caller came at the wrong time, or to the wrong replica."""
    return JSONResponse(problem(status, code, detail).model_dump(), status, media_type=MEDIA_TYPE)


def visible_job(server: ServerState, job_id: str, who: Caller) -> Job:
    """To a submitter, the jobs of others do not exist (X2)."""
    job = server.services.database.read(lambda tx: get_job(tx, JobId(job_id)))
    if not who.sees(job.agent):
        raise NotFound(f"there is no job {job.job_id!r}")
    return job
