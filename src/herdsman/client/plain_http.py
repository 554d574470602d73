"""Kept connections of a program that blocks, without a library around them: for the busy calls of workers and clients."""

import http.client
import select
import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx

from herdsman.errors import Unreachable

MOST_IDLE = 16
IDLE_S = 30.0
_CHUNK = 65_536
_HTTPS = "https"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A request as it is sent."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    seconds: float
    """The longest silence."""

    @property
    def shown(self) -> str:
        return f"{self.method} {self.url}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What comes before the body of an answer."""

    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""


Opened = tuple[Head, AsyncIterator[bytes]]
"""An answer whose head has arrived, and the chunks of its body."""


def no_answer(request: Outgoing, kind: str, shown: str = "") -> Unreachable:
    """Only its kind, and not as the cause: the text of a protocol error may repeat what was sent."""
    return Unreachable(
        f"{request.shown} got no answer: {kind}{shown and f' ({shown})'}; "
        "check that the server runs and can be reached from here"
    )


class _Line(http.client.HTTPConnection):
    """Sends head and body in one piece: the other side has one packet to look at, and not two."""

    _pieces: tuple[bytes, ...] = ()

    def send(self, data: Any) -> None:
        self._pieces += (data,)

    def flush(self) -> None:
        self.sock.sendall(b"".join(self._pieces))
        self._pieces = ()


class _TlsLine(_Line, http.client.HTTPSConnection):
    pass


class PlainHttp:
    """Safe to share between threads: each request has a connection of its own while it lasts."""

    def __init__(self, url: str) -> None:
        self._place: SplitResult = urlsplit(url)
        self._tls: ssl.SSLContext | None = httpx.create_ssl_context() if self._place.scheme == _HTTPS else None
        self._idle: deque[tuple[float, _Line]] = deque()

    @asynccontextmanager
    async def open(self, request: Outgoing) -> AsyncGenerator[Opened]:
        line, whole = self._connected(request), False
        try:
            with _translated(request):
                path = urlsplit(request.url)._replace(scheme="", netloc="").geturl()
                line.request(request.method, path or "/", request.body, dict(request.headers))
                line.flush()
                response = line.getresponse()

            async def chunks() -> AsyncGenerator[bytes]:
                nonlocal whole
                with _translated(request):
                    while chunk := response.read1(_CHUNK):
                        yield chunk
                    if response.length:
                        raise http.client.IncompleteRead(b"", response.length)
                whole = True

            headers: dict[str, str] = {}
            for name, value in response.getheaders():
                known = headers.get(name.lower())
                headers[name.lower()] = value if known is None else f"{known}, {value}"
            yield Head(status=response.status, headers=headers), chunks()
            response.close()
            whole = whole and not response.will_close
        finally:
            if whole and len(self._idle) < MOST_IDLE:
                self._idle.append((time.monotonic(), line))
            else:
                line.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    def _connected(self, request: Outgoing) -> _Line:
        """The one that was used last, if its server has not closed it meanwhile."""
        while True:
            try:
                since, line = self._idle.pop()
            except IndexError:
                break
            if time.monotonic() - since < IDLE_S and _silent(line):
                line.sock.settimeout(request.seconds)
                return line
            line.close()
        host, port = self._place.hostname or "", self._place.port
        if self._tls is None:
            line = _Line(host, port, timeout=request.seconds)
        else:
            line = _TlsLine(host, port, timeout=request.seconds, context=self._tls)
        try:
            line.connect()  # without the delay of small packets
        except TimeoutError:
            raise no_answer(request, "ConnectTimeout") from None
        except (OSError, UnicodeError) as error:
            raise no_answer(request, "ConnectError", str(error)) from None
        return line


def _silent(line: _Line) -> bool:
    """What can be read before anything was asked is the end of the line."""
    watch = select.poll()
    watch.register(line.sock, select.POLLIN)
    return not watch.poll(0)


@contextmanager
def _translated(request: Outgoing) -> Generator[None]:
    try:
        yield
    except TimeoutError:
        raise no_answer(request, "ReadTimeout") from None
    except OSError:
        raise no_answer(request, "ReadError") from None
    except http.client.HTTPException:
        raise no_answer(request, "RemoteProtocolError") from None
