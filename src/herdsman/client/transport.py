"""The one place that sends requests: within limits, and again where that is safe and may help."""

import random
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any, TypeVar

import httpx

from herdsman.client.address import Address, checked_token
from herdsman.client.answers import Answer, foreign, refusal
from herdsman.client.call import Call, understood
from herdsman.client.connection import Connection, Stream
from herdsman.client.retries import TRY_AGAIN, Patience
from herdsman.core.errors import HerdsmanError, Unreachable
from herdsman.wire.model import VERSION_HEADER

LARGEST_ANSWER = 64 * 1024 * 1024
SHORTEST = timedelta(seconds=1)
"""Even a caller in a hurry gives the server that long to answer."""
EVENTS = "text/event-stream"

T = TypeVar("T")


class _Endless(Unreachable):
    """It would be as long the next time."""


class StreamOver(Exception):
    """The server says that nothing more will come."""


class Transport:
    """Safe to share between threads, or between tasks."""

    def __init__(
        self,
        connection: Connection,
        *,
        url: str,
        token: str | None,
        timeout: timedelta,
        patience: Patience,
        on_version: Callable[[str], None] | None = None,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._connection = connection
        self._address = Address(url)
        self._token = checked_token(token)
        self._timeout = timeout
        self._patience = patience
        self._on_version = on_version
        self._spread = spread

    def renew(self, token: str) -> None:
        """For every later request."""
        self._token = checked_token(token)

    def now(self) -> float:
        return self._connection.monotonic()

    async def pause(self, duration: timedelta) -> None:
        await self._connection.pause(duration)

    async def close(self) -> None:
        await self._connection.close()

    async def send(self, call: Call[T], *, until: float | None = None) -> T:
        """The answer. What may be repeated is, but neither past the patience nor past `until`."""
        began, tries = self.now(), 0
        while True:
            tries += 1
            try:
                answer = await self._exchange(call, until)
            except _Endless:
                raise
            except Unreachable as error:
                failed, asked = error, None
            else:
                if answer.status not in TRY_AGAIN:
                    return understood(call, answer)
                failed, asked = refusal(answer), answer.retry_after
            await self._wait_or_raise(failed, asked, tries=tries, began=began, until=until)

    async def stream(self, call: Call[object], *, silence: timedelta) -> AsyncGenerator[bytes]:
        """What comes down an endless answer; nothing for `silence`, and it counts as broken. Sent once."""
        request = self._address.request(call, token=self._token, timeout=silence)
        stream = await self._connection.open(request)
        try:
            await self._check_stream(request, stream)
            while chunk := await stream.chunk():
                yield chunk
        finally:
            await stream.close()

    async def file(self, call: Call[object], *, silence: timedelta) -> AsyncGenerator[bytes]:
        """What comes down an answer of any size, or the error that it stands for. Sent once."""
        request = self._address.request(call, token=self._token, timeout=silence)
        stream = await self._connection.open(request)
        try:
            if stream.status != 200 or VERSION_HEADER not in stream.headers:
                answer = await self._read(request, stream, self.now() + self._timeout.total_seconds())
                raise refusal(answer) if answer.status >= 400 else foreign(answer)
            while chunk := await stream.chunk():
                yield chunk
        finally:
            await stream.close()

    def pause_after(self, tries: int, *, asked: timedelta | None, began: float) -> timedelta | None:
        """How long to rest after that many tries since `began`; None when it is time to give up."""
        spent = timedelta(seconds=self.now() - began)
        return self._patience.pause(tries=tries, asked=asked, spent=spent, spread=self._spread())

    async def _wait_or_raise(
        self,
        failed: HerdsmanError,
        asked: timedelta | None,
        *,
        tries: int,
        began: float,
        until: float | None,
    ) -> None:
        pause = self.pause_after(tries, asked=asked, began=began)
        if pause is None or (until is not None and self.now() + pause.total_seconds() > until):
            raise failed
        await self.pause(pause)

    async def _exchange(self, call: Call[Any], until: float | None) -> Answer:
        timeout = self._timeout + call.wait
        if until is not None:
            timeout = min(timeout, max(SHORTEST, timedelta(seconds=until - self.now())))
        request = self._address.request(call, token=self._token, timeout=timeout)
        deadline = self.now() + timeout.total_seconds()
        stream = await self._connection.open(request)
        try:
            return await self._read(request, stream, deadline)
        finally:
            await stream.close()

    async def _read(self, request: httpx.Request, stream: Stream, deadline: float) -> Answer:
        """To its end, but neither for ever nor without measure: the timeout limits only the silence in between.

        An answer that is late but here is read: it may bring claims, and nobody would know of them. It is here when
        its rest takes no time.
        """
        body, late = bytearray(), False
        while chunk := await stream.chunk():
            body += chunk
            if (now := self.now()) > deadline and not late:
                deadline, late = now + SHORTEST.total_seconds(), True
            if len(body) > LARGEST_ANSWER or now > deadline:
                raise _Endless(
                    f"{request.method} {request.url} is still being answered after {len(body):,} bytes: gave up"
                )
        answer = Answer(
            asked=f"{request.method} {request.url}",
            status=stream.status,
            headers=stream.headers,
            body=bytes(body),
        )
        self._note_version(answer)
        return answer

    async def _check_stream(self, request: httpx.Request, stream: Stream) -> None:
        if stream.status == 204:
            raise StreamOver
        if stream.status != 200 or not stream.headers.get("content-type", "").startswith(EVENTS):
            answer = await self._read(request, stream, self.now() + self._timeout.total_seconds())
            raise refusal(answer) if answer.status >= 400 else foreign(answer)

    def _note_version(self, answer: Answer) -> None:
        version = answer.headers.get(VERSION_HEADER)
        if version and self._on_version is not None:
            self._on_version(version)
