"""Server-sent events: how a stream is written, resumed and kept alive."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from herdsman.api.streams import LOOK_S, Stream, Streams, Wanted
from herdsman.core.errors import StoreUnavailable

KEEP_ALIVE_S = 15.0
CUT_OFF = ": too slow, events were left out; connect again with Last-Event-ID\n\n"
AWAY = ": the database is away; connect again with Last-Event-ID\n\n"
STOPPING = ": the server stops; connect again with Last-Event-ID\n\n"


async def told(
    streams: Streams, wanted: Wanted, since: int | None, *, follow: bool = True
) -> AsyncIterator[str]:
    """What happened after `since`, then what happens; without `since` only the latter.

    Without `follow` it ends with what has happened, and begins with the first that is kept if nobody says otherwise.
    """
    yield "retry: 1000\n\n"
    past, stream = _Past(streams, wanted, since if follow else since or 0), None
    try:
        if not follow:
            until = await run_in_threadpool(streams.last)
            async for text in past.told(until=until):
                yield text
            return
        async for text in past.told():
            yield text
        stream = await run_in_threadpool(streams.open, wanted, asyncio.get_running_loop())
        if since is None:  # who is cut off before the first event can come back to this place
            yield f"id: {stream.since}\n\n"
        async for text in past.told(until=stream.since):  # what came before the opening
            yield text
        async for text in live(stream):
            yield text
    except StoreUnavailable:  # the head of the answer is out, so this is the only way left to say it
        yield AWAY
    finally:
        if stream is not None:
            streams.close(stream)


@dataclass
class _Past:
    """A page at a time, as fast as the client takes it."""

    streams: Streams
    wanted: Wanted
    since: int | None

    async def told(self, until: int | None = None) -> AsyncIterator[str]:
        """Up to `until`, or as far as there is something."""
        while self.since is not None and (until is None or self.since < until):
            page = await self.streams.past.after(self.since)
            events = [each for each in page if until is None or each.entry.id <= until]
            if events:
                self.since = events[-1].entry.id
                # The number comes along even when nothing was wanted, so that it need not be read again.
                texts = [each.text for each in events if self.wanted(each.entry)]
                yield "".join(texts) + f"id: {self.since}\n\n"
            elif until is None:
                return
            else:  # the next one is still being written
                await asyncio.sleep(LOOK_S)


async def live(stream: Stream) -> AsyncIterator[str]:
    """What happens from now on, until the server stops or the client has fallen behind."""
    while not stream.ended:
        if stream.events:
            yield "".join(stream.events.popleft().text for _ in range(len(stream.events)))
        if stream.cut_off:
            yield CUT_OFF
            return
        stream.news.clear()
        if stream.events or stream.cut_off or stream.ended:
            continue
        try:
            await asyncio.wait_for(stream.news.wait(), KEEP_ALIVE_S)
        except TimeoutError:
            yield ": still here\n\n"
    yield STOPPING
