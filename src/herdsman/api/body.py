"""Bodies: read whole, within a limit and a deadline, and taken apart off the event loop when they are large."""

import asyncio
import re
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from herdsman.api.errors import Refused
from herdsman.api.limits import Limits
from herdsman.core.body import MOST_PARTS, decode
from herdsman.core.errors import InvalidRequest, TooLarge

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


def announces_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


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
