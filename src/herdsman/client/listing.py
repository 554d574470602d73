"""Everything there is, page by page, and everything that happens, as it happens."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import TypeVar

from pydantic import ValidationError

from herdsman.client import calls, sse
from herdsman.client.call import Call
from herdsman.client.transport import StreamOver, Transport
from herdsman.core.errors import HerdsmanError, StoreUnavailable, TooMany, Unreachable
from herdsman.wire.jobs import EventOut, JobOut, JobsOut
from herdsman.wire.workers import WorkerOut, WorkersOut

SILENCE = timedelta(seconds=45)
"""The server says something every 15 s, if only that it is there."""
PAGE = 200

P = TypeVar("P", JobsOut, WorkersOut)


class Listing:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def jobs(
        self,
        *,
        statuses: Sequence[str] = (),
        kind: str | None = None,
        agent: str | None = None,
        pool: str | None = None,
        tag: str | None = None,
        failure_class: str | None = None,
    ) -> AsyncGenerator[JobOut]:
        def page(after: str | None) -> Call[JobsOut]:
            return calls.jobs(
                statuses=statuses,
                kind=kind,
                agent=agent,
                pool=pool,
                tag=tag,
                failure_class=failure_class,
                after=after,
                limit=PAGE,
            )

        async for found in self._pages(page):
            for job in found.jobs:
                yield job

    async def workers(self) -> AsyncGenerator[WorkerOut]:
        async for found in self._pages(lambda after: calls.workers(after, PAGE)):
            for worker in found.workers:
                yield worker

    async def _pages(self, page: Callable[[str | None], Call[P]]) -> AsyncGenerator[P]:
        after: str | None = None
        while True:
            found = await self._transport.send(page(after))
            yield found
            if found.next is None:
                return
            if found.next == after:
                raise Unreachable(f"the server's list does not end: {after!r} follows upon itself")
            after = found.next

    async def events(
        self, *, since: int | None, kind: str | None, job_id: str | None, follow: bool = True
    ) -> AsyncGenerator[EventOut]:
        """Without end and without gaps: a broken stream is taken up again behind the last event that arrived.

        Without `follow`, what has happened so far.
        """
        last: str | None = None
        breaks = _Breaks(self._transport)
        while True:
            start = since if last is None else None
            call = calls.events(since=start, last=last, kind=kind, job_id=job_id, follow=follow)
            try:
                async with aclosing(self._heard(call)) as heard:
                    async for event in heard:
                        last = event.id or last
                        breaks.forget()
                        if event.data:
                            yield _read(event.data)
            except StreamOver:
                return
            except (Unreachable, StoreUnavailable, TooMany) as error:
                await breaks.rest(error)
            else:
                if not follow:
                    return
                await breaks.rest(Unreachable("the stream of events ended at once, again and again"))

    async def _heard(self, call: Call[object]) -> AsyncGenerator[sse.Event]:
        parser = sse.Parser()
        async with aclosing(self._transport.stream(call, silence=SILENCE)) as chunks:
            try:
                async for chunk in chunks:
                    for event in parser.feed(chunk):
                        yield event
            except sse.TooLong:
                raise Unreachable(
                    f"an event of more than {sse.LARGEST_EVENT:,} bytes is none of Herdsman's: check the URL"
                ) from None


class _Breaks:
    """How often in a row, and for how long, the stream could not be had."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._tries = 0
        self._began = 0.0

    def forget(self) -> None:
        self._tries = 0

    async def rest(self, error: HerdsmanError) -> None:
        if self._tries == 0:
            self._began = self._transport.now()
        self._tries += 1
        asked = error.retry_after if isinstance(error, TooMany) else None
        pause = self._transport.pause_after(self._tries, asked=asked, began=self._began)
        if pause is None:
            raise error
        await self._transport.pause(pause)


def _read(data: str) -> EventOut:
    try:
        return EventOut.model_validate_json(data)
    except ValidationError:
        raise Unreachable("an event on the stream is none of Herdsman's: check the URL") from None
