"""Everything that the requests of one server share, built whole before the first of them."""

import asyncio
from asyncio import Semaphore
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from threading import BoundedSemaphore, Condition, Event, Lock, Thread
from typing import Annotated

import structlog
from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from herdsman.access.authenticator import Authenticator, Keyring
from herdsman.context import Services
from herdsman.errors import ClaimsHeld, HerdsmanError, Overloaded, StoreUnavailable, TooMany
from herdsman.fleet import workers_sql
from herdsman.fleet.commands import Overviews
from herdsman.fleet.cost import Costs
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs.commands import last_event, read_events
from herdsman.jobs.model import AuditEntry, NewJob, Submitted
from herdsman.jobs.wire import EventOut
from herdsman.jobs.writer import POLL, Writer
from herdsman.leases.lease_queue import LeaseQueue, open_lease_queue
from herdsman.pools.rules import PoolReport
from herdsman.ports import Clock, ResultFiles, SystemClock
from herdsman.redis.bus import StreamBus
from herdsman.server.limits import Limits, LoginThrottle
from herdsman.server.metrics import DatabaseCollector, StreamsCollector
from herdsman.server.readiness import Readiness
from herdsman.server.wiring import Control
from herdsman.settings import Settings
from herdsman.telemetry.metric_families import Metrics

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


MOST_POOLS = 20_000
MOST_FORWARDED = 8
MOST_PARSING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    services: Services
    keyring: Keyring
    authenticator: Authenticator
    login_throttle: LoginThrottle
    writer: Writer
    leases: LeaseQueue
    streams: Streams
    metrics: Metrics
    readiness: Readiness
    overviews: Overviews
    costs: Costs
    control: Control | None
    """The control loop of this replica, where it runs one."""
    bus: StreamBus | None
    """Redis Streams, where there is a Redis; no call of it waits or fails."""
    results: ResultFiles | None
    """The files of jobs, where this server can reach them."""
    limits: Limits
    settings: Settings | None
    """Those that it was started with, to be shown."""
    safe_mode: bool
    """Only workers change anything."""
    stopping: Event
    """Set when the process ends: whoever waits for a client answers at once."""
    cycling: Lock = field(default_factory=Lock)
    """Serialises the cycles that requests ask for."""
    forwarding: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(MOST_FORWARDED))
    """A request that waits for the leader of another replica holds a thread here."""
    parsing: Semaphore = field(default_factory=lambda: Semaphore(MOST_PARSING))
    """Threads that parse large bodies."""
    worker_pools: OrderedDict[WorkerId, PoolId] = field(default_factory=OrderedDict[WorkerId, PoolId])

    def require_database(self) -> None:
        """Raises `ClaimsHeld` in an outage in which this replica can answer for the claims of workers.

        At once, and to anybody: they cannot be looked up, and a worker must hear of it before it stops its jobs.
        """
        if self.control is not None and self.control.leadership.holds_claims:
            raise ClaimsHeld("the database is away: go on with your jobs, and send the next heartbeat")

    async def pool_of(self, worker_id: WorkerId) -> PoolId:
        """Cached: it never changes. `NotFound` tells a worker that it is not wanted (W2)."""
        if worker_id not in self.worker_pools:
            found = await run_in_threadpool(
                self.services.database.read, lambda tx: workers_sql.get_worker(tx, worker_id).pool
            )
            self.worker_pools[worker_id] = found
            while len(self.worker_pools) > MOST_POOLS:
                self.worker_pools.popitem(last=False)
        return self.worker_pools[worker_id]

    def announce_jobs(self, news: Sequence[NewJob], done: Sequence[Submitted]) -> None:
        """After they were stored: wakes workers that wait, here and elsewhere."""
        self.writer.ring()
        if self.bus is not None:
            self.bus.announce_jobs(news, done)

    def announce_queued(self) -> None:
        """Jobs were queued by something else than a submission."""
        self.writer.ring()
        if self.bus is not None:
            self.bus.resync_soon()

    def announce_pool(self, event: str, status: PoolReport) -> PoolReport:
        """Where there are streams, the leader hears of it at once; else with its next cycle."""
        pool = status.pool
        if self.bus is not None:
            self.bus.announce_pool(event, pool.pool_id, pool.serves, pool.desired_workers)
        return status

    def announce_control(self, event: str, by: str, scope: str = "all") -> None:
        if self.bus is not None:
            self.bus.announce_control(event, by, scope)

    def mirror_service(self, job_id: str, mapping: Mapping[str, str]) -> None:
        """Where there is a Redis, it shows where a job is on an external service."""
        if self.bus is not None:
            self.bus.mirror(job_id, mapping)

    def stop_waiting(self) -> None:
        """Answers every request that waits for something."""
        self.stopping.set()
        self.writer.stop()
        self.leases.stop()


def build_state(
    services: Services,
    keyring: Keyring,
    *,
    clock: Clock | None = None,
    admin_key: str | None = None,
    control: Control | None = None,
    open_bus: Callable[[Writer], StreamBus] | None = None,
    wake_others: Callable[[], None] = lambda: None,
    results: ResultFiles | None = None,
    limits: Limits | None = None,
    login_throttle: LoginThrottle | None = None,
    settings: Settings | None = None,
    safe_mode: bool = False,
) -> ServerState:
    """`wake_others` tells the other replicas of jobs that were queued here."""
    clock, limits, stopping, metrics = clock or SystemClock(), limits or Limits(), Event(), Metrics()
    poll = POLL if settings is None else timedelta(seconds=settings.database.sql_poll_sec)

    def count_round(asked: int, served: int) -> None:
        metrics.asked.observe(asked)
        metrics.served.inc(served)

    def note_submitted(news: Sequence[NewJob], done: Sequence[Submitted | HerdsmanError]) -> None:
        count_admissions(metrics, done)
        stored = [(new, each) for new, each in zip(news, done, strict=True) if isinstance(each, Submitted)]
        if bus is not None and any(each.created for _, each in stored):
            bus.announce_jobs([new for new, _ in stored], [each for _, each in stored])

    writer = Writer(
        services, SystemClock(), poll=poll, wake_others=wake_others, on_round=count_round, on_submitted=note_submitted
    )
    bus = None if open_bus is None else open_bus(writer)
    streams = Streams(services, stopping, limits)
    metrics.add(DatabaseCollector(services, control))
    if bus is not None:
        metrics.add(StreamsCollector(bus))
    metrics.waiting.set_function(lambda: writer.waiting)
    metrics.streams.set_function(lambda: streams.count)

    return ServerState(
        services=services,
        keyring=keyring,
        authenticator=Authenticator(services, clock, keyring, admin_key=admin_key),
        login_throttle=login_throttle or LoginThrottle(clock),
        writer=writer,
        leases=open_lease_queue(services, metrics.leased),
        streams=streams,
        metrics=metrics,
        readiness=Readiness(services.database, stopping, dict[str, str] if control is None else control.loops.faults),
        overviews=Overviews(services, SystemClock()),
        costs=Costs(services, SystemClock()),
        control=control,
        bus=bus,
        results=results,
        limits=limits,
        settings=settings,
        safe_mode=safe_mode,
        stopping=stopping,
    )


def count_admissions(metrics: Metrics, answers: Sequence[Submitted | HerdsmanError]) -> None:
    """What was submitted before, or could never be accepted, is no decision of admission control."""
    for answer in answers:
        match answer:
            case Submitted(created=True, admission=None):
                metrics.admission.labels("accepted", "").inc()
            case Submitted(created=True, admission=str(code), pool=pool):
                metrics.admission.labels("deferred" if pool is None else "rerouted", code).inc()
            case TooMany(code=str(code)):
                metrics.admission.labels("rejected", code).inc()
            case _:
                pass


async def state_of(request: Request) -> ServerState:
    """Async, because FastAPI would give a plain function a thread, for a look at a field."""
    found: ServerState = request.app.state.server
    return found


Server = Annotated[ServerState, Depends(state_of)]
