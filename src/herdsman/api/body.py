"""Bodies: read whole, within a limit and a deadline, and looked at before anything takes them apart."""

import asyncio
import re
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from herdsman.api.errors import Refused, answer_to, refuse
from herdsman.api.limits import Limits
from herdsman.core.body import MAX_DEPTH
from herdsman.core.errors import InvalidRequest, TooLarge

ROOM_AROUND = 8
"""Levels that the words around a payload may add to it."""

_MOST_DIGITS = 18
_LARGE = re.compile(r"/jobs/submit/batch|/jobs/finish|/workers/[^/]+/heartbeat")
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json\s*(?:;|$)", re.IGNORECASE)
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_NO_NUMBER = re.compile(rb"NaN|Infinity")


class Bodies:
    """Hands on a body that is complete and could be JSON, or answers itself."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
        except (Refused, TooLarge) as error:
            await refuse(error, scope, receive, send)
            return
        except ClientDisconnect:
            return
        try:
            check_json(body)
        except InvalidRequest as error:
            await answer_to(error)(scope, receive, send)
            return
        await self._app(scope, _replayed(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        headers, limit = Headers(scope=scope), self._limit(scope["path"])
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or len(declared) > _MOST_DIGITS or int(declared) > limit:
            raise _too_large(limit)
        if int(declared) > 0 or "transfer-encoding" in headers:
            _check_kind(headers)
        deadline = self._limits.body_deadline.total_seconds()
        try:
            async with asyncio.timeout(deadline):
                return await _collect(receive, limit)
        except TimeoutError as error:
            said = f"the body did not arrive within {deadline:g} seconds"
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, "too-slow", said) from error

    def _limit(self, path: str) -> int:
        return self._limits.large_body_bytes if _LARGE.fullmatch(path) else self._limits.body_bytes


def check_json(body: bytes) -> None:
    """What a parser would choke on or let pass: depth, numbers that JSON lacks, bytes that are no text."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: byte {error.start} begins no character") from error
    bare = _TEXT.sub(b"", body)
    if _NO_NUMBER.search(bare):
        raise InvalidRequest("the body contains NaN or Infinity: JSON has no such number")
    if depth(bare) > MAX_DEPTH + ROOM_AROUND:
        raise InvalidRequest(f"the body is nested deeper than {MAX_DEPTH} levels")


def depth(bare: bytes) -> int:
    """Of JSON whose texts were taken out."""
    if bare.count(b"[") + bare.count(b"{") <= MAX_DEPTH:
        return 0  # most bodies; not worth a closer look
    deepest = now = 0
    for found in _BRACKET.finditer(bare):
        now += 1 if found[0] in b"[{" else -1
        deepest = max(deepest, now)
    return deepest


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


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once, then what the client does next: that is how a route learns that it has gone."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again
