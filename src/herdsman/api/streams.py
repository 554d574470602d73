"""Everything that happens, told to all who listen: one look at the audit for all streams of this process."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition, Event, Thread

import structlog

from herdsman.control.commands import last_event, read_events
from herdsman.control.services import Services
from herdsman.core.errors import StoreUnavailable
from herdsman.core.model import AuditEntry

log = structlog.get_logger()

LOOK_S = 0.5
ROOM = 2_000
"""How far a client may fall behind before it is cut off."""

Wanted = Callable[[AuditEntry], bool]


@dataclass(eq=False, slots=True)
class Stream:
    """One listener. It is filled by the looking thread and emptied on the event loop."""

    since: int
    """Later events come by themselves."""
    wanted: Wanted
    loop: asyncio.AbstractEventLoop
    news: asyncio.Event = field(default_factory=asyncio.Event)
    events: deque[AuditEntry] = field(default_factory=deque[AuditEntry])
    cut_off: bool = False
    ended: bool = False

    def put(self, events: Sequence[AuditEntry]) -> None:
        mine = [each for each in events if self.wanted(each)]
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


class Streams:
    """Its thread lives as long as somebody listens."""

    def __init__(self, services: Services, stopping: Event) -> None:
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
                self._tell(events)

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

    def _tell(self, events: Sequence[AuditEntry]) -> None:
        with self._change:
            self._seen = events[-1].id
            for stream in self._streams:
                stream.put(events)
