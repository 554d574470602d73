"""Server-sent events: one reader of the audit log for all streams, and how each is written and resumed."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Condition, Event, Thread

import structlog
from starlette.concurrency import run_in_threadpool

from herdsman.context import Services
from herdsman.errors import Overloaded, StoreUnavailable, TooMany
from herdsman.jobs.commands import last_event, read_events
from herdsman.jobs.model import AuditEntry
from herdsman.jobs.wire import EventOut
from herdsman.server.limits import Limits

log = structlog.get_logger()

LOOK_S = 0.5
ROOM = 2_000
"""How far a client may fall behind before it is cut off."""
PAGE = 500
MOST_PAGES = 32
"""Pages of the past that are kept, for others who want the same."""
MOST_READING = 2
_FULL_FOR = timedelta(seconds=30)
"""After so long a client that was refused a stream may try again."""

Wanted = Callable[[AuditEntry], bool]


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """An event and how it is written: made once for all streams, by the thread that read it."""

    entry: AuditEntry
    text: str

    @staticmethod
    def of(entry: AuditEntry) -> "StreamedEvent":
        body = EventOut.of(entry).model_dump_json()
        return StreamedEvent(entry, f"id: {entry.id}\nevent: {entry.event_type}\ndata: {body}\n\n")


@dataclass(eq=False, slots=True)
class Stream:
    """One listener. It is filled by the looking thread and emptied on the event loop."""

    since: int
    """Later events come by themselves."""
    wanted: Wanted
    loop: asyncio.AbstractEventLoop
    news: asyncio.Event = field(default_factory=asyncio.Event)
    events: deque[StreamedEvent] = field(default_factory=deque[StreamedEvent])
    cut_off: bool = False
    ended: bool = False

    def put(self, events: Sequence[StreamedEvent]) -> None:
        mine = [each for each in events if self.wanted(each.entry)]
        if self.cut_off or not mine:
            return
        if len(self.events) + len(mine) > ROOM:
            self.cut_off = True
        else:
            self.events.extend(mine)
        self.rouse()

    def rouse(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.news.set)


class Past:
    """What has happened, a page at a time: read once for all who want it. To be used on the event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._pages: OrderedDict[int, Sequence[StreamedEvent]] = OrderedDict()
        self._asked: dict[int, asyncio.Task[Sequence[StreamedEvent]]] = {}
        # Whoever asks for years of events must leave the threads to those who ask for jobs.
        self._turns = asyncio.Semaphore(MOST_READING)

    async def after(self, since: int) -> Sequence[StreamedEvent]:
        """The next ones; none where there are none yet."""
        start = since - since % PAGE  # the same pages for all, wherever they begin
        page = self._pages.get(start)
        if page is None:
            task = self._asked.get(start)
            if task is None:
                task = self._asked[start] = asyncio.create_task(self._read(start))
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
            page = await asyncio.shield(task)
        return [each for each in page if each.entry.id > since]

    async def _read(self, start: int) -> Sequence[StreamedEvent]:
        try:
            async with self._turns:
                entries = await run_in_threadpool(read_events, self._services, start, limit=PAGE)
        finally:
            del self._asked[start]
        page = [StreamedEvent.of(each) for each in entries]
        if len(page) == PAGE:  # one that is not full may grow
            self._pages[start] = page
            while len(self._pages) > MOST_PAGES:
                self._pages.popitem(last=False)
        return page


class Streams:
    """Its thread lives as long as somebody listens."""

    def __init__(self, services: Services, stopping: Event, limits: Limits | None = None) -> None:
        self.past = Past(services)
        self._limits = limits or Limits()
        self._admitted: Counter[str] = Counter()
        self._services = services
        self._stopping = stopping
        self._change = Condition()
        self._streams: set[Stream] = set()
        self._seen = 0
        self._thread: Thread | None = None

    @property
    def count(self) -> int:
        return len(self._streams)

    @property
    def looking(self) -> bool:
        return self._thread is not None

    def last(self) -> int:
        """The newest event of all; asks the database."""
        return last_event(self._services)

    @contextmanager
    def admitted(self, token_id: str, address: str) -> Generator[None]:
        """A place for one stream, or `TooMany` or `Overloaded`. To be used on the event loop."""
        limits = self._limits
        places = (
            (f"token {token_id}", limits.streams_per_token, "API_MAX_STREAMS_PER_TOKEN"),
            (f"address {address}", limits.streams_per_address, "API_MAX_STREAMS_PER_ADDRESS"),
            ("all", limits.streams, "API_MAX_STREAMS"),
        )
        for name, most, setting in places:
            if self._admitted[name] >= most:
                whose = "this server" if name == "all" else f"this {name.split()[0]}"
                said = f"{whose} has {most} event streams open already: close some of them, or raise {setting}"
                kind = Overloaded if name == "all" else TooMany
                raise kind(said, retry_after=_FULL_FOR, code="streams")
        names = [name for name, _, _ in places]
        self._admitted.update(names)
        try:
            yield
        finally:
            self._admitted.subtract(names)
            self._admitted += Counter()  # without those that are 0

    def open(self, wanted: Wanted, loop: asyncio.AbstractEventLoop) -> Stream:
        """Blocks for one look at the database when it is the first."""
        # Not under the lock: whoever closes a stream is the event loop, and must not wait for the database.
        seen = self._seen if self.looking else last_event(self._services)
        with self._change:
            if self._thread is None:
                self._seen = seen
                self._thread = Thread(target=self._run, name="events", daemon=True)
                self._thread.start()
            stream = Stream(self._seen, wanted, loop)
            self._streams.add(stream)
        return stream

    def close(self, stream: Stream) -> None:
        with self._change:
            self._streams.discard(stream)
            self._change.notify()

    def _run(self) -> None:
        while self._more():
            try:
                events = read_events(self._services, self._seen)
            except StoreUnavailable as error:
                log.warning("events.unseen", reason=str(error))
                continue
            if events:
                news = [StreamedEvent.of(each) for each in events]
                with self._change:
                    self._seen = events[-1].id
                    for stream in self._streams:
                        stream.put(news)

    def _more(self) -> bool:
        """Whether somebody still listens; with the last one goes the thread."""
        with self._change:
            if self._streams:
                self._change.wait(LOOK_S)
            if self._stopping.is_set():
                for stream in self._streams:
                    stream.ended = True
                    stream.rouse()
                self._streams.clear()
            if not self._streams:
                self._thread = None
            return self._thread is not None


KEEP_ALIVE_S = 15.0
CUT_OFF = ": too slow, events were left out; connect again with Last-Event-ID\n\n"
AWAY = ": the database is away; connect again with Last-Event-ID\n\n"
STOPPING = ": the server stops; connect again with Last-Event-ID\n\n"


async def told(streams: Streams, wanted: Wanted, since: int | None, *, follow: bool = True) -> AsyncIterator[str]:
    """What happened after `since`, then what happens; without `since` only the latter.

    Without `follow` it ends with what has happened, and begins with the first that is kept if nobody says otherwise.
    """
    yield "retry: 1000\n\n"
    at, stream = since if follow else since or 0, None
    try:
        if not follow:
            until = await run_in_threadpool(streams.last)
            async for _, text in _past(streams, wanted, at, until):
                yield text
            return
        async for reached, text in _past(streams, wanted, at):
            at = reached
            yield text
        stream = await run_in_threadpool(streams.open, wanted, asyncio.get_running_loop())
        if since is None:  # who is cut off before the first event can come back to this place
            yield f"id: {stream.since}\n\n"
        async for _, text in _past(streams, wanted, at, stream.since):  # what came before the opening
            yield text
        async for text in live(stream):
            yield text
    except StoreUnavailable:  # the head of the answer is out, so this is the only way left to say it
        yield AWAY
    finally:
        if stream is not None:
            streams.close(stream)


async def _past(
    streams: Streams, wanted: Wanted, since: int | None, until: int | None = None
) -> AsyncIterator[tuple[int, str]]:
    """Up to `until`, or as far as there is something: a page at a time, as fast as the client takes it, each with the
    number of its last event."""
    while since is not None and (until is None or since < until):
        page = await streams.past.after(since)
        events = [each for each in page if until is None or each.entry.id <= until]
        if events:
            since = events[-1].entry.id
            # The number comes along even when nothing was wanted, so that it need not be read again.
            texts = [each.text for each in events if wanted(each.entry)]
            yield since, "".join(texts) + f"id: {since}\n\n"
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
