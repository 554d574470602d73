"""Everything that the requests of one server share, built whole before the first of them."""

from asyncio import Semaphore
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from threading import BoundedSemaphore, Event, Lock
from typing import Annotated

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from herdsman.access.authenticator import Authenticator, Keyring
from herdsman.context import Services
from herdsman.errors import ClaimsHeld, HerdsmanError, TooMany
from herdsman.fleet import workers_sql
from herdsman.fleet.commands import Overviews
from herdsman.fleet.cost import Costs
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs.model import NewJob, Submitted
from herdsman.jobs.writer import POLL, Writer
from herdsman.leases.lease_queue import LeaseQueue, open_lease_queue
from herdsman.pools.rules import PoolReport
from herdsman.ports import Clock, ResultFiles, SystemClock
from herdsman.redis.bus import StreamBus
from herdsman.server.event_stream import Streams
from herdsman.server.limits import Limits, LoginThrottle
from herdsman.server.metrics import DatabaseCollector, StreamsCollector
from herdsman.server.readiness import Readiness
from herdsman.server.wiring import Control
from herdsman.settings import Settings
from herdsman.telemetry.metric_families import Metrics

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
