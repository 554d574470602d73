"""One connection: closed when its request does not come or has no end, when its answer is not read, and refused when
there are too many."""

import asyncio
from collections.abc import Sized
from datetime import timedelta
from enum import Enum, auto
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_AHEAD = 100
"""Requests that a client may send before it has read the answers to earlier ones."""
LARGEST_HEAD = 65_536

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
)
_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class _Part(Enum):
    HEAD = auto()
    BODY = auto()


class TooManyAhead(Exception):
    """The parser answers it with 400, and closes the line."""


class Watched:
    """Stands before a protocol of uvicorn, which itself waits for the head of a request for ever, and keeps all of it."""

    head_seconds: ClassVar[float]
    reader_seconds: ClassVar[float]
    most: ClassVar[int]
    cycle: Any
    connections: set[Any]
    loop: asyncio.AbstractEventLoop
    pipeline: Sized = ()
    transport: asyncio.Transport
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _reading: _Part | None = None
    """Which part of a request comes next; None between two. The slower parser does not tell, and limits heads itself."""
    _head: int = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._pass_on("connection_made", transport)
        if len(self.connections) > self.most:
            self._refuse(_FULL)
        else:
            self._begin()

    def data_received(self, data: bytes) -> None:
        before, began_in = self.cycle, self._reading
        self._pass_on("data_received", data)
        if self.cycle is not before:
            self._head = 0
            self._end()
            return
        # What ends a body may begin the next head: only pieces without a body are counted.
        if self._reading is _Part.HEAD and began_in is not _Part.BODY:
            self._measure(len(data))
        if before is None or before.response_complete:
            self._begin()

    def on_message_begin(self) -> None:
        self._reading = _Part.HEAD
        self._pass_on("on_message_begin")

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_AHEAD:
            raise TooManyAhead
        self._reading = _Part.BODY
        self._pass_on("on_headers_complete")

    def on_message_complete(self) -> None:
        self._reading = None
        self._pass_on("on_message_complete")

    def pause_writing(self) -> None:
        """The client does not read what it asked for, and answers pile up here; a slow one empties the pile in time."""
        self._pass_on("pause_writing")
        if self._unread is None:
            self._unread = self.loop.call_later(self.reader_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._forgive()
        self._pass_on("resume_writing")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._forgive()
        self._pass_on("connection_lost", exc)

    def _pass_on(self, word: str, *said: object) -> None:
        getattr(super(), word)(*said)

    def _measure(self, size: int) -> None:
        """What has come so far of a head that is not complete."""
        self._head += size
        if self._head > LARGEST_HEAD:
            self._refuse(_HEAD_TOO_LARGE)

    def _refuse(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()

    def _begin(self) -> None:
        """From the first byte on, or from the moment that a line is open and silent."""
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self._cut)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _forgive(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _cut(self) -> None:
        self._deadline = None
        self.transport.abort()


def protocol(*, head_deadline: timedelta, reader_deadline: timedelta, most: int) -> type[asyncio.Protocol]:
    limits = {
        "head_seconds": head_deadline.total_seconds(),
        "reader_seconds": reader_deadline.total_seconds(),
        "most": most,
    }
    return type("Connection", (Watched, _fastest()), limits)


def _fastest() -> type[asyncio.Protocol]:
    """The parser in C where it is installed."""
    if find_spec("httptools") is None:
        return H11Protocol
    found: type[asyncio.Protocol] = import_module("uvicorn.protocols.http.httptools_impl").HttpToolsProtocol
    return found
