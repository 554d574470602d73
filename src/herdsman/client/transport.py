"""The one place that sends requests: within limits, and again where that is safe and may help.

Everything is written once, in coroutines; the connection is the only part that differs between programs that block and
programs with an event loop. A coroutine over a `BlockingConnection` never waits for an event loop, so `run` drives it to
its end at once.
"""

import random
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload
from urllib.parse import quote, urlencode
from urllib.request import getproxies

import httpx

from herdsman import __version__
from herdsman.client.call import Answer, Call, foreign, onward, refusal
from herdsman.client.plain_http import Head, Opened, Outgoing, PlainHttp, no_answer
from herdsman.errors import HerdsmanError, InvalidRequest, TooMany, Unreachable
from herdsman.ports import Clock, SystemClock
from herdsman.wire import VERSION_HEADER

LARGEST_ANSWER = 64 * 1024 * 1024
SHORTEST = timedelta(seconds=1)
"""Even a caller in a hurry gives the server that long to answer."""
RETRIED = frozenset({429, 502, 503, 504})
LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=16, keepalive_expiry=30)
HEADERS = {
    "User-Agent": f"herdsman/{__version__}",
    "Accept": "application/json, application/problem+json, text/event-stream",
    # A small answer may then not unfold into a huge one.
    "Accept-Encoding": "identity",
}

P = ParamSpec("P")
T = TypeVar("T")
Seconds = float | timedelta


def span(given: Seconds) -> timedelta:
    return given if isinstance(given, timedelta) else timedelta(seconds=given)


class Page(Protocol):
    @property
    def next(self) -> str | None: ...


Paged = TypeVar("Paged", bound=Page)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """When to send a request again. Every request may be repeated safely, so only time is a limit."""

    most: timedelta = timedelta(seconds=30)
    """How long a request is repeated, from its first try; zero means that it is sent once."""
    base: timedelta = timedelta(milliseconds=200)
    cap: timedelta = timedelta(seconds=5)

    def pause(self, *, tries: int, asked: timedelta | None, spent: timedelta, spread: float) -> timedelta | None:
        """The time to wait after so many tries; None when it is time to give up.

        `asked` is what the server wants, and is never cut short; `spread` in [0, 1) keeps clients apart.
        """
        plain = min(self.cap, self.base * 2 ** min(tries - 1, 20))
        pause = plain * (0.5 + spread / 2) if asked is None else asked + self.base * spread
        return pause if spent + pause < self.most else None


class StreamOver(Exception):
    """The server says that nothing more will come."""


class _Endless(Unreachable):
    """It would be as long the next time."""


class Transport:
    """Safe to share between threads, or between tasks."""

    def __init__(
        self,
        connection: "Connection",
        *,
        url: str,
        token: str | None,
        timeout: timedelta,
        patience: Patience,
        on_version: Callable[[str], None] | None = None,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._connection = connection
        self._url = checked_url(url)
        self._token = checked_token(token)
        self._timeout = timeout
        self._patience = patience
        self._on_version = on_version
        self._version: str | None = None
        """Of the server, as it said with its last answer."""
        self._spread = spread
        self.now, self.pause, self.close = connection.monotonic, connection.pause, connection.close

    def renew(self, token: str) -> None:
        """For every later request."""
        self._token = checked_token(token)

    async def send(self, call: Call[T], *, until: float | None = None) -> T:
        """The answer. Failures that may pass are retried, but neither past the patience nor past `until`."""
        began, tries = self.now(), 0
        while True:
            tries += 1
            timeout = self._timeout + call.wait
            if until is not None:
                timeout = min(timeout, max(SHORTEST, timedelta(seconds=until - self.now())))
            deadline = self.now() + timeout.total_seconds()
            try:
                request = self._request(call, timeout)
                async with self._connection.open(request) as (head, chunks):
                    answer = await self._read(request, head, chunks, deadline)
            except _Endless:
                raise
            except Unreachable as error:
                failed, asked = error, None
            else:
                if answer.status in call.also or 200 <= answer.status < 300:
                    return call.read(answer)
                failed, asked = (refusal(answer) if answer.status >= 400 else foreign(answer), answer.retry_after)
                if answer.status not in RETRIED:
                    raise failed
            await self.rest(failed, tries=tries, began=began, asked=asked, until=until)

    async def pages(self, call: Callable[[str | None], Call[Paged]]) -> AsyncGenerator[Paged]:
        """One page after the other; `call` asks for the one that begins at a place."""
        after: str | None = None
        while True:
            page = await self.send(call(after))
            yield page
            if page.next is None:
                return
            after = onward(page.next, after)

    async def stream(
        self, call: Call[object], *, silence: timedelta, ours: Callable[[Mapping[str, str]], bool]
    ) -> AsyncGenerator[bytes]:
        """The body of an answer of any size, as it arrives; no byte for `silence` breaks it. Sent once.

        `ours` tells by the headers whether a 200 is Herdsman's; any other answer is raised as the error it stands for.
        """
        request = self._request(call, silence)
        async with self._connection.open(request) as (head, chunks):
            if head.status in call.also:
                raise StreamOver
            if head.status != 200 or not ours(head.headers):
                answer = await self._read(request, head, chunks, self.now() + self._timeout.total_seconds())
                raise refusal(answer) if answer.status >= 400 else foreign(answer)
            async for chunk in chunks:
                yield chunk

    async def rest(
        self,
        error: HerdsmanError,
        *,
        tries: int,
        began: float,
        asked: timedelta | None = None,
        until: float | None = None,
    ) -> None:
        """Pause after that many failed tries since `began`; raises the error when it is time to give up.

        `asked` is how long the server wants us to wait.
        """
        if isinstance(error, TooMany):
            asked = error.retry_after
        spent = timedelta(seconds=self.now() - began)
        pause = self._patience.pause(tries=tries, asked=asked, spent=spent, spread=self._spread())
        if pause is None or (until is not None and self.now() + pause.total_seconds() > until):
            raise error
        await self.pause(pause)

    def _request(self, call: Call[Any], timeout: timedelta) -> Outgoing:
        headers = {
            **HEADERS,
            **({} if self._token is None else {"Authorization": f"Bearer {self._token}"}),
            **({} if call.body is None else {"Content-Type": "application/json"}),
            **call.headers,
        }
        params = [
            (name, str(each))
            for name, value in call.params.items()
            for each in (cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,))
            if each is not None
        ]
        query = f"?{urlencode(params, quote_via=quote)}" if params else ""
        return Outgoing(
            method=call.method,
            url=f"{self._url}{call.path}{query}",
            headers=headers,
            body=call.body,
            seconds=timeout.total_seconds(),
        )

    async def _read(self, request: Outgoing, head: Head, chunks: AsyncIterator[bytes], deadline: float) -> Answer:
        """To its end, but neither for ever nor without measure: the timeout limits only the silence in between.

        An answer that is late but here is read: it may bring claims, and nobody would know of them. It is here when
        its rest takes no time.
        """
        asked = request.shown
        body, late = bytearray(), False
        async for chunk in chunks:
            body += chunk
            if (now := self.now()) > deadline and not late:
                deadline, late = now + SHORTEST.total_seconds(), True
            if len(body) > LARGEST_ANSWER or now > deadline:
                raise _Endless(f"{asked} is still being answered after {len(body):,} bytes: gave up")
        version = head.headers.get(VERSION_HEADER)
        if version and version != self._version:
            self._version = version
            if self._on_version is not None:
                self._on_version(version)
        return Answer(asked=asked, status=head.status, headers=head.headers, body=bytes(body))


class BlockingConnection:
    """Its coroutines never wait for an event loop: they block, and are driven by `run`.

    The library is used only where there is something to know: a proxy, or a transport of one's own.
    """

    def __init__(self, url: str, clock: Clock | None = None, transport: httpx.BaseTransport | None = None) -> None:
        self._clock = clock or SystemClock()
        self.monotonic = self._clock.monotonic
        self._client: httpx.Client | PlainHttp
        if transport is None and getproxies().keys() <= {"no"}:
            self._client = PlainHttp(url)
            self.open = self._client.open
        else:
            self._client = httpx.Client(limits=LIMITS, transport=transport, verify=_tls(url))
            self.open = partial(self._open, self._client)

    async def pause(self, duration: timedelta) -> None:
        self._clock.sleep(duration)

    @asynccontextmanager
    async def _open(self, client: httpx.Client, request: Outgoing) -> AsyncGenerator[Opened]:
        with translated(request):
            response = client.send(_of_library(request), stream=True)  # noqa: ASYNC212  (nothing else runs meanwhile)
            try:
                yield _head(response), _each(response.iter_bytes())
            finally:
                response.close()

    async def close(self) -> None:
        self._client.close()


def _of_library(request: Outgoing) -> httpx.Request:
    return httpx.Request(
        request.method,
        request.url,
        headers=request.headers,
        content=request.body,
        extensions={"timeout": httpx.Timeout(request.seconds).as_dict()},
    )


def _head(response: httpx.Response) -> Head:
    return Head(status=response.status_code, headers=response.headers)


def _tls(url: str) -> ssl.SSLContext | bool:
    """Plain HTTP needs no certificates, and reading those of the system takes a tenth of a short command."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http://") else True


async def _each(chunks: Iterator[bytes]) -> AsyncGenerator[bytes]:
    for chunk in chunks:
        yield chunk


class AsyncConnection:
    """For programs with an event loop. With a clock of its own, a pause is what that clock makes of it."""

    def __init__(self, url: str, clock: Clock | None = None, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._clock = clock
        self.monotonic = time.monotonic if clock is None else clock.monotonic
        self._client = httpx.AsyncClient(limits=LIMITS, transport=transport, verify=_tls(url))

    async def pause(self, duration: timedelta) -> None:
        if self._clock is not None:
            self._clock.sleep(duration)
        import asyncio  # noqa: PLC0415  (a program that blocks does not need it)

        await asyncio.sleep(duration.total_seconds() if self._clock is None else 0)

    @asynccontextmanager
    async def open(self, request: Outgoing) -> AsyncGenerator[Opened]:
        with translated(request):
            response = await self._client.send(_of_library(request), stream=True)
            try:
                yield _head(response), response.aiter_bytes()
            finally:
                await response.aclose()

    async def close(self) -> None:
        await self._client.aclose()


Connection = BlockingConnection | AsyncConnection
"""Raises `Unreachable` for whatever the network does."""


@contextmanager
def translated(request: Outgoing) -> Generator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.StreamError) as error:
        shown = str(error) if isinstance(error, httpx.ConnectError) else ""
        raise no_answer(request, type(error).__name__, shown) from None


def checked_url(url: str) -> str:
    try:
        parsed = httpx.URL(url.strip())
    except httpx.InvalidURL as error:
        raise InvalidRequest(f"the URL of the server cannot be read: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidRequest(f"the URL of the server is {url!r}: it must look like http://host:port or https://host")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise InvalidRequest("the URL of the server may hold neither a password nor a query: pass the token apart")
    return str(parsed).rstrip("/")


def checked_token(token: str | None) -> str | None:
    """A token with a line break in it, as a file brings one, would be a header of its own."""
    if token is None:
        return None
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidRequest("the token is empty or has characters in it that no token has: copy it again")
    return token


class Blocking:
    """A class whose operations return when they are done."""


class Awaited:
    """A class whose operations are awaited."""


class operation(Generic[P, T]):  # noqa: N801  (a decorator)
    """A coroutine method: awaited on an `Awaited` class, run to its end on a `Blocking` one."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        @wraps(method)
        def blocking(self: object, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return run(method(self, *args, **kwargs))

        self._awaited, self._blocking = method, blocking

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: Blocking, owner: type[Any]) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Awaited, owner: type[Any]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: object, owner: type[Any]) -> Callable[..., Any]:
        method = self._blocking if issubclass(owner, Blocking) else self._awaited
        return method if instance is None else MethodType(method, instance)


class iteration(Generic[P, T]):  # noqa: N801  (a decorator)
    """A method that makes an asynchronous generator: a plain iterator on a `Blocking` class."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncGenerator[T]]) -> None:
        @wraps(method)
        def blocking(self: object, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            return iterate(method(self, *args, **kwargs))

        self._awaited, self._blocking = method, blocking

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: Blocking, owner: type[Any]) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, instance: Awaited, owner: type[Any]) -> Callable[P, AsyncGenerator[T]]: ...
    def __get__(self, instance: object, owner: type[Any]) -> Callable[..., Any]:
        method = self._blocking if issubclass(owner, Blocking) else self._awaited
        return method if instance is None else MethodType(method, instance)


def run(doing: Coroutine[Any, Any, T]) -> T:
    try:
        doing.send(None)
    except StopIteration as done:
        return done.value
    doing.close()
    raise AssertionError("a coroutine of a blocking client waited for an event loop")


def iterate(items: AsyncGenerator[T]) -> Iterator[T]:
    """Closes the generator with it, so that a loop that is left early leaves no connection open."""
    try:
        while True:
            try:
                item = run(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())
