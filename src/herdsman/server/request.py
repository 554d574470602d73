"""What the routes share: who calls, bodies within their limits, and the route class that counts and times."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cached_property
from http import HTTPStatus
from inspect import signature
from typing import Annotated, Any, NamedTuple, cast, get_args, get_origin

from fastapi import Depends, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope

from herdsman.access.rules import Caller
from herdsman.errors import Forbidden, HerdsmanError, InvalidRequest, NotFound, TooLarge
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import Job
from herdsman.jobs.sql import get_job
from herdsman.json_text import MOST_PARTS, decode
from herdsman.server.access import MATRIX, OPEN, Line, require_harmless
from herdsman.server.errors import LONGEST_STEP, Refused, answer_to, refusal
from herdsman.server.state import ServerState
from herdsman.wire import MEDIA_TYPE, problem

CALLER = "caller"


async def guard(request: Request) -> Caller | None:
    """A dependency of the whole app: rights, and the names of query parameters. None where the route is open to all."""
    route = request.scope.get("route")
    assert isinstance(route, APIRoute), "only plain routes can be authorised"
    return authorise(route, request.scope, request.app.state.server)


def authorise(route: APIRoute, scope: Scope, server: ServerState) -> Caller | None:
    line = (scope["method"], route.path)
    found: Caller | None = None
    if line not in OPEN:
        found = cast("Caller", scope["state"][CALLER])
        if found.role not in MATRIX.get(line, ()):
            raise Forbidden(f"a token with the role {found.role} may not {line[0]} {line[1]}")
        if server.safe_mode:
            require_harmless(line)
    if scope["query_string"]:
        _check_query(line, QueryParams(scope["query_string"]), route)
    return found


def _check_query(line: Line, given: QueryParams, route: APIRoute) -> None:
    """A filter that is misspelt would match everything, and what follows may end all of it."""
    known = dict(_query_of(route.dependant))
    for name in given:
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes none"
            raise InvalidRequest(f"there is no query parameter {name[:LONGEST_STEP]!r}: {line[0]} {line[1]} {takes}")
        if not known[name] and len(given.getlist(name)) > 1:
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
_JSON = re.compile(rb"application/(?:[\w.+-]+\+)?json\s*(?:;|$)", re.IGNORECASE)


async def receive_body(route: "ApiRoute", scope: Scope, receive: Receive, server: ServerState) -> bytes | Response:
    """The body within its limits, from a caller who may send it; or the answer where that is refused."""
    limit = server.limits.large_body_bytes if route.many else server.limits.body_bytes
    deadline = server.limits.body_deadline.total_seconds()
    body = b""
    try:
        authorise(route, scope, server)
        _check_head(dict(reversed(scope["headers"])), limit)
        async with asyncio.timeout(deadline):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return Response(status_code=400)  # nobody is there to read it
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        slow = f"the body did not arrive within {deadline:g} seconds"
        return await refusal(Refused(HTTPStatus.REQUEST_TIMEOUT, "too-slow", slow), receive)
    except (HerdsmanError, Refused) as error:
        return await refusal(error, receive)
    return body


def _check_head(headers: Mapping[bytes, bytes], limit: int) -> None:
    declared = headers.get(b"content-length", b"0")
    if not declared.isdigit() or len(declared) > _MOST_DIGITS or int(declared) > limit:
        raise _too_large(limit)
    if int(declared) > 0 or b"transfer-encoding" in headers:
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            wrong = "compressed bodies are not taken: send it as it is"
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-encoding", wrong)
        if not _JSON.match(headers.get(b"content-type", b"")):
            wrong = "the body must be JSON: send the header Content-Type: application/json"
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-type", wrong)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit:,} bytes: store the data elsewhere and pass a reference")


async def parse_body(route: "ApiRoute", body: bytes, server: ServerState) -> Any:
    assert route.wanted is not None
    if len(body) <= SMALL:
        return parse(body, route.wanted, many=route.many)
    async with server.parsing:
        return await run_in_threadpool(parse, body, route.wanted, many=route.many)


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
    """Counts and times its requests, and reads a body only from a caller who may send it: the framework would read it
    first, on the event loop, and look at the caller afterwards.

    Series are named by the template of the path, never by the path itself: their number has a limit.
    """

    def get_route_handler(self) -> Any:
        handle: Callable[[Request], Awaitable[Response]] = super().get_route_handler()

        async def answer(request: Request) -> Response:
            if self.wanted is not None:
                server: ServerState = request.app.state.server
                body = await receive_body(self, request.scope, request.receive, server)
                if isinstance(body, Response):
                    return body
                value = await parse_body(self, body, server) if body else None
                # Where a request keeps what was read of it: the framework finds it there.
                request._body, request._json = body, value  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
            return await handle(request)

        async def measured(request: Request) -> Response:
            began, status = time.monotonic(), 500
            try:
                response = await answer(request)
            except Exception as error:
                found = answer_to(error)
                status = 500 if found is None else found.status_code
                raise
            else:
                status = response.status_code
                return response
            finally:
                self.measure(request.app.state.server, began, status)

        return measured

    @cached_property
    def wanted(self) -> TypeAdapter[Any] | None:
        """What its body is made into."""
        field = self.body_field
        return None if field is None else TypeAdapter[Any](cast("Any", field.field_info.annotation))

    @property
    def many(self) -> bool:
        return self.path in MANY

    def measure(self, server: ServerState, began: float, status: int) -> None:
        method, metrics = str(*(self.methods or ())), server.metrics
        metrics.requests.labels(method, self.path, str(status)).inc()
        metrics.seconds.labels(method, self.path).observe(time.monotonic() - began)


class Answer(NamedTuple):
    """Of a busy route: its body is made already."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class BusyRoute(ApiRoute):
    """FastAPI only describes it: the middleware calls `serve`, and the way through the framework, which takes longer
    than the work, is left out. Its function is given what it names: the body, `who`, `server`, `worker_id`, `receive`.
    """

    @cached_property
    def _takes(self) -> tuple[str, frozenset[str]]:
        """The name of its body, and all names."""
        return self.dependant.body_params[0].name, frozenset(signature(self.endpoint).parameters)

    async def serve(self, scope: Scope, receive: Receive, server: ServerState, worker_id: str) -> Answer | Response:
        began, status = time.monotonic(), 500
        try:
            body = await receive_body(self, scope, receive, server)
            answer = body if isinstance(body, Response) else await self._answer(body, scope, receive, server, worker_id)
            status = answer.status if isinstance(answer, Answer) else answer.status_code
        except Exception as error:
            answer = answer_to(error)
            if answer is None:
                raise
            status = answer.status_code
        finally:
            self.measure(server, began, status)
        return answer

    async def _answer(self, body: bytes, scope: Scope, receive: Receive, server: ServerState, worker_id: str) -> Answer:
        if not body:
            raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
        named, takes = self._takes
        given = {
            named: await parse_body(self, body, server),
            "who": scope["state"][CALLER],
            "server": server,
            "worker_id": worker_id,
            "request": Request(scope, receive) if "request" in takes else None,
        }
        return await self.endpoint(**{name: given[name] for name in takes})


def refused(status: int, code: str, detail: str) -> JSONResponse:
    """For what is no error of ours: the caller came at the wrong time, or to the wrong replica."""
    return JSONResponse(problem(status, code, detail).model_dump(), status, media_type=MEDIA_TYPE)


def visible_job(server: ServerState, job_id: str, who: Caller) -> Job:
    """To a submitter, the jobs of others do not exist (X2)."""
    job = server.services.database.read(lambda tx: get_job(tx, JobId(job_id)))
    if not who.sees(job.agent):
        raise NotFound(f"there is no job {job.job_id!r}")
    return job
