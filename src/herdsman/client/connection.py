"""The only part that differs between programs that block and those that do not: bytes and time."""

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

import httpx

from herdsman.core.errors import Unreachable
from herdsman.ports import Clock, SystemClock

LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=16, keepalive_expiry=30)


class Stream(Protocol):
    """An answer whose head has arrived."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def chunk(self) -> bytes:
        """The next piece of the body; empty at its end."""
        ...

    async def close(self) -> None: ...


class Connection(Protocol):
    """Raises `Unreachable` for whatever the network does."""

    def monotonic(self) -> float: ...

    async def pause(self, duration: timedelta) -> None: ...

    async def open(self, request: httpx.Request) -> Stream: ...

    async def close(self) -> None: ...


class Blocking:
    """Its coroutines never wait for an event loop: they block, and are run by `driving`."""

    def __init__(self, clock: Clock | None = None, transport: httpx.BaseTransport | None = None) -> None:
        self._clock = clock or SystemClock()
        self._client = httpx.Client(limits=LIMITS, transport=transport)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def pause(self, duration: timedelta) -> None:
        self._clock.sleep(duration)

    async def open(self, request: httpx.Request) -> Stream:
        with translated(request):
            return _BlockingStream(self._client.send(request, stream=True))

    async def close(self) -> None:
        self._client.close()


class Waiting:
    """For programs with an event loop. With a clock of its own, a pause is what that clock makes of it."""

    def __init__(self, clock: Clock | None = None, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._clock = clock
        self._client = httpx.AsyncClient(limits=LIMITS, transport=transport)

    def monotonic(self) -> float:
        return time.monotonic() if self._clock is None else self._clock.monotonic()

    async def pause(self, duration: timedelta) -> None:
        if self._clock is not None:
            self._clock.sleep(duration)
        await asyncio.sleep(duration.total_seconds() if self._clock is None else 0)

    async def open(self, request: httpx.Request) -> Stream:
        with translated(request):
            return _WaitingStream(await self._client.send(request, stream=True))

    async def close(self) -> None:
        await self._client.aclose()


class _Answered:
    """What both kinds of stream know from the head of the answer."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers


class _BlockingStream(_Answered):
    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response)
        self._chunks: Iterator[bytes] = response.iter_bytes()

    async def chunk(self) -> bytes:
        with translated(self._response.request):
            return next(self._chunks, b"")

    async def close(self) -> None:
        self._response.close()


class _WaitingStream(_Answered):
    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response)
        self._chunks: AsyncIterator[bytes] = response.aiter_bytes()

    async def chunk(self) -> bytes:
        with translated(self._response.request):
            return await anext(self._chunks, b"")

    async def close(self) -> None:
        await self._response.aclose()


@contextmanager
def translated(request: httpx.Request) -> Generator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.StreamError) as error:
        # Only its kind, and not as the cause: the text of a protocol error may repeat what was sent.
        said = str(error) if isinstance(error, httpx.ConnectError) else ""
        raise Unreachable(
            f"{request.method} {request.url} got no answer: {type(error).__name__}{said and f' ({said})'}; "
            "check that the server runs and can be reached from here"
        ) from None
