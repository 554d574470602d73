"""How much one request may be: its host, its headers, and what every answer says to browsers."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from herdsman import __version__
from herdsman.api.errors import Refused, refuse
from herdsman.wire.model import VERSION_HEADER

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ANSWERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    VERSION_HEADER: __version__,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    hosts: frozenset[str] = frozenset()
    """Names by which this server may be called, besides those of the machine itself."""
    body_bytes: int = 1_048_576 + 65_536
    """A payload of 1 MiB, and room for the words around it."""
    large_body_bytes: int = 16_777_216
    """Where one request speaks of many jobs."""
    body_deadline: timedelta = timedelta(seconds=15)
    header_bytes: int = 16_384
    headers: int = 100
    streams: int = 1_000
    """Of events, open at a time: in all, and of one token and one address."""
    streams_per_token: int = 50
    streams_per_address: int = 200


class Heads:
    """Looks at the head of a request before anything else does."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._hosts = LOOPBACK | {host.lower() for host in limits.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                _protect(MutableHeaders(raw=message.setdefault("headers", [])))
            await send(message)

        try:
            self._check(scope["headers"], Headers(scope=scope))
        except Refused as error:
            await refuse(error, scope, receive, answer)
            return
        await self._app(scope, receive, answer)

    def _check(self, raw: Iterable[tuple[bytes, bytes]], headers: Headers) -> None:
        count, size = len(headers.raw), sum(len(name) + len(value) for name, value in raw)
        if count > self._limits.headers or size > self._limits.header_bytes:
            raise Refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers-too-large",
                f"{count} headers with {size:,} bytes came, the limits are {self._limits.headers}"
                f" and {self._limits.header_bytes:,}",
            )
        given = headers.getlist("host")
        if len(given) != 1 or host_name(given[0]) not in self._hosts:
            raise Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "wrong-host",
                "this server is not called by that name: add it to the allowed hosts, or use another URL",
            )


def host_name(given: str) -> str:
    """Without the port: `[::1]:80` is `::1`."""
    if given.startswith("["):
        return given[1:].partition("]")[0].lower()
    return given.partition(":")[0].lower()


def _protect(headers: MutableHeaders) -> None:
    for name, value in _ANSWERS.items():
        headers.setdefault(name, value)
