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

from herdsman.access.rules import Caller
from herdsman.errors import Forbidden, HerdsmanError, InvalidRequest, NotFound, TooLarge
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import Job
from herdsman.jobs.sql import get_job
from herdsman.json_text import MOST_PARTS, decode
from herdsman.server.access import MATRIX, OPEN, require_harmless
from herdsman.server.errors import LONGEST_STEP, Refused, refusal
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
        if found.role not in MATRIX.get(line, ()):
            raise Forbidden(f"a token with the role {found.role} may not {line[0]} {line[1]}")
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


Who = Annotated[Caller, Depends(guard)]
"""Not for routes that are open to all, which have no caller."""


def own_worker(who: Caller, worker_id: str | None = None) -> WorkerId:
    """The worker that calls; `Forbidden` when the path names another (X2)."""
    if who.worker_id is None or worker_id not in (None, who.worker_id):
        raise Forbidden(f"the token is not that of worker {worker_id!r}")
    return who.worker_id


MANY = frozenset({"/jobs/submit/batch", "/jobs/finish", "/workers/{worker_id}/heartbeat"})
"""Routes on which one request speaks of many jobs."""
MOST_PARTS_OF_MANY = 4_000_000
SMALL = 16_384
"""Up to here a body is taken apart at once: a thread would cost more than it saves."""

_MOST_MISTAKES = 100
_MOST_DIGITS = 18
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json\s*(?:;|$)", re.IGNORECASE)


async def receive_body(
    request: Request, server: ServerState, wanted: TypeAdapter[Any], *, many: bool
) -> Response | None:
    """Reads the body within its limits, and makes it into what the route asks for; the answer where it is refused.

    The framework would read it first, on the event loop, and look at the caller afterwards.
    """
    headers, limits = request.headers, server.limits
    limit = limits.large_body_bytes if many else limits.body_bytes
    said = f"the body is larger than {limit:,} bytes: store the data elsewhere and pass a reference"
    body, deadline = bytearray(), limits.body_deadline.total_seconds()
    try:
        await guard(request)
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or len(declared) > _MOST_DIGITS or int(declared) > limit:
            raise TooLarge(said)
        if int(declared) > 0 or "transfer-encoding" in headers:
            if headers.get("content-encoding", "identity").lower() != "identity":
                wrong = "compressed bodies are not taken: send it as it is"
                refused = Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-encoding", wrong)
                return await refusal(refused, request.receive)
            if not _JSON.match(headers.get("content-type", "")):
                wrong = "the body must be JSON: send the header Content-Type: application/json"
                refused = Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-type", wrong)
                return await refusal(refused, request.receive)
        async with asyncio.timeout(deadline):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise TooLarge(said)
    except TimeoutError:
        slow = f"the body did not arrive within {deadline:g} seconds"
        return await refusal(Refused(HTTPStatus.REQUEST_TIMEOUT, "too-slow", slow), request.receive)
    except (HerdsmanError, Refused) as error:
        return await refusal(error, request.receive)
    except ClientDisconnect:
        return Response(status_code=400)  # nobody is there to read it
    read, value = bytes(body), None
    if len(read) > SMALL:
        async with server.parsing:
            value = await run_in_threadpool(parse, read, wanted, many=many)
    elif read:
        value = parse(read, wanted, many=many)
    # Where a request keeps what was read of it: the framework finds it there.
    request._body, request._json = read, value  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    return None


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


class ApiRoute(APIRoute):
    """Counts and times its requests, and reads a body only from a caller who may send it.

    Series are named by the template of the path, never by the path itself: their number has a limit.
    """

    def get_route_handler(self) -> Any:
        handle: Callable[[Request], Awaitable[Response]] = super().get_route_handler()
        field, many = self.body_field, self.path in MANY
        wanted = None if field is None else TypeAdapter[Any](cast("Any", field.field_info.annotation))

        async def measured(request: Request) -> Response:
            began, status = time.monotonic(), 500
            server: ServerState = request.app.state.server
            try:
                refusing = None if wanted is None else await receive_body(request, server, wanted, many=many)
                response = refusing or await handle(request)
            except Exception as error:
                match error:
                    case HerdsmanError():
                        status = problem_of(error).status
                    case RequestValidationError():
                        status = 422
                    case HTTPException():
                        status = error.status_code
                    case _:
                        pass
                raise
            else:
                status = response.status_code
                return response
            finally:
                method, path, metrics = request.method, self.path, server.metrics
                metrics.requests.labels(method, path, str(status)).inc()
                metrics.seconds.labels(method, path).observe(time.monotonic() - began)

        return measured


def refused(status: int, code: str, detail: str) -> JSONResponse:
    """For what is no error of ours: the caller came at the wrong time, or to the wrong replica."""
    return JSONResponse(problem(status, code, detail).model_dump(), status, media_type=MEDIA_TYPE)


def visible_job(server: ServerState, job_id: str, who: Caller) -> Job:
    """To a submitter, the jobs of others do not exist (X2)."""
    job = server.services.database.read(lambda tx: get_job(tx, JobId(job_id)))
    if not who.sees(job.agent):
        raise NotFound(f"there is no job {job.job_id!r}")
    return job
