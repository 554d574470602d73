"""One connection: closed when its request does not come, and refused when there are too many."""

import asyncio
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
)


class Watched:
    """Stands before a protocol of uvicorn, which itself waits for the head of a request for ever."""

    head_seconds: ClassVar[float]
    most: ClassVar[int]
    cycle: Any
    connections: set[Any]
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._pass_on("connection_made", transport)
        if len(self.connections) > self.most:
            transport.write(_FULL)
            transport.close()
        else:
            self._begin()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        self._pass_on("data_received", data)
        if self.cycle is not before:
            self._end()
        elif before is None or before.response_complete:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._pass_on("connection_lost", exc)

    def _pass_on(self, word: str, said: object) -> None:
        getattr(super(), word)(said)

    def _begin(self) -> None:
        """From the first byte on, or from the moment that a line is open and silent."""
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self._cut)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut(self) -> None:
        self._deadline = None
        self.transport.abort()


def protocol(*, head_deadline: timedelta, most: int) -> type[asyncio.Protocol]:
    limits = {"head_seconds": head_deadline.total_seconds(), "most": most}
    return type("Connection", (Watched, _fastest()), limits)


def _fastest() -> type[asyncio.Protocol]:
    """The parser in C where it is installed."""
    if find_spec("httptools") is None:
        return H11Protocol
    found: type[asyncio.Protocol] = import_module("uvicorn.protocols.http.httptools_impl").HttpToolsProtocol
    return found
