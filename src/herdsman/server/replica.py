"""One replica of the control plane: its API, its loops and what they share, built from the settings."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Event

import structlog

from herdsman.context import Services
from herdsman.db.notify import Wakeup, open_wakeup
from herdsman.errors import InvalidSettings
from herdsman.fleet.actions import Note
from herdsman.fleet.execute import WorkerAccess
from herdsman.fleet.reconcile import LISTEN, LeaderInbox
from herdsman.jobs.sweep import STAGING, Sweeper
from herdsman.jobs.writer import Writer
from herdsman.loops.loop_group import LoopGroup
from herdsman.loops.periodic import PeriodicLoop
from herdsman.loops.watchdog import Notifier
from herdsman.ports import Clock, SystemClock, SystemThreads, Threads
from herdsman.redis.bus import StreamBus
from herdsman.redis.stream_loops import ReplicaHooks
from herdsman.server.app import create_app
from herdsman.server.http_server import ApiServer, Listening, Tls, bind
from herdsman.server.limits import Limits
from herdsman.server.metrics import DatabaseCollector
from herdsman.server.state import ServerState, build_state
from herdsman.server.wiring import Control, open_control, open_keyring, open_results
from herdsman.settings import Origin, Settings
from herdsman.settings.environment import push_name
from herdsman.settings.options import LOCAL
from herdsman.states import PoolStatus
from herdsman.telemetry.metric_families import Metrics, PushGateway

log = structlog.get_logger()
POLL_LOCAL = timedelta(seconds=1)
FOLLOWS = timedelta(milliseconds=200)
HANGS_AFTER = timedelta(minutes=15)
"""A turn waits for the database or a provider for minutes at most, however long they are away."""
STOPS_WITHIN = timedelta(minutes=2)
"""A cycle may be waiting for a provider's answer, which says whether a machine was rented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopIntervals:
    poll: timedelta
    """Between two cycles of the leader."""
    sweep: timedelta
    """Between two looks for claims and leases that have expired."""
    pool_poll: timedelta = timedelta(seconds=10)
    """The same while a pool that was asked for by name has workers, or wants them."""
    follow: timedelta = FOLLOWS
    """How long one that does not lead waits before it looks again whether it does."""
    staging: timedelta = STAGING
    inbox: timedelta = LISTEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """Everything that a replica does by itself, until it is told to stop; also in a simulation, without HTTP."""

    state: ServerState
    control: Control
    intervals: LoopIntervals
    sweeper: Sweeper
    inbox: LeaderInbox
    clock: Clock
    threads: Threads
    server: ApiServer | None = None
    wakeup: Wakeup | None = None
    gateway: PushGateway | None = None
    push_every: timedelta = timedelta(minutes=1)

    @property
    def url(self) -> str:
        assert self.server is not None, "this replica serves no HTTP"
        return self.server.url

    def start(self) -> None:
        """Requests are answered from here on; the control loop begins with `run`."""
        if self.server is not None:
            self.server.start()
        if self.gateway is not None:
            self.gateway.start(self.push_every)
        if self.wakeup is not None:
            self.wakeup.start(self.state.writer.wake)
        if self.state.bus is not None:
            self.state.bus.start()

    def run(self, stopping: Event) -> None:
        """Loops side by side: one keeps the leadership, one keeps jobs moving, one keeps the fleet, one answers requests.

        One that dies takes the others with it: half a control plane looks healthy and is not. One that hangs is
        reported, and not killed: the API serves on without it.
        """
        clock, threads = self.clock, self.threads
        group = LoopGroup(
            [
                self.control.leadership.loop(threads),
                self.sweeper.loop(threads),
                PeriodicLoop("reconciler", self.reconcile, clock=clock, threads=threads),
                self.inbox.loop(threads),
            ],
            watchdog_threshold=None,
            readiness_threshold=HANGS_AFTER.total_seconds(),
            shutdown_timeout=STOPS_WITHIN.total_seconds(),
            on_late=lambda member: log.error("loop.hangs", loop=member.name, seconds=round(member.age or 0.0)),
            notifier=Notifier({}),  # systemd is not asked to wait for a replica
            health=self.control.loops,
            threads=threads,
            clock=clock,
        )
        group.start(on_end=stopping.set)
        stopping.wait()
        group.stop()

    def reconcile(self) -> float:
        """One cycle, and the seconds to wait for the next; whoever is elected begins at once."""
        led = self.control.leadership.term is not None
        cycle = self.control.reconciler.tick()
        changed = any(outcome.done and not isinstance(outcome.step.action, Note) for outcome in cycle.outcomes)
        (log.info if changed else log.debug)("cycle.done", **cycle.summary())
        served = (PoolStatus.STARTING, PoolStatus.RUNNING, PoolStatus.DRAINING)
        pools = () if cycle.seen is None else cycle.seen.pools
        has_named_pools = any(pool.life is not None and pool.life.status in served for pool in pools)
        intervals = self.intervals
        poll = min(intervals.poll, intervals.pool_poll) if has_named_pools else intervals.poll
        return (poll if led else min(intervals.follow, poll)).total_seconds()

    def stop(self) -> None:
        if self.gateway is not None:
            self.gateway.stop()
        if self.server is not None:
            self.server.stop()
        if self.state.bus is not None:
            self.state.bus.stop()
        if self.wakeup is not None:
            self.wakeup.stop()


def open_replica(settings: Settings, services: Services) -> Replica:
    """Nobody is answered before `start`, but the port is taken: workers are told where to find this replica."""
    api, keyring = settings.api, open_keyring(settings, services)
    listener = bind(listening(settings))
    try:
        access = WorkerAccess(services=services, keyring=keyring, url=api.api_url or listener.url)
        control = open_control(settings, services, access)
        wakeup = open_wakeup(services.database)
        state = build_state(
            services,
            keyring,
            admin_key=None if api.admin_api_key is None else api.admin_api_key.get_secret_value(),
            control=control,
            open_bus=bus_opener(settings, services, control),
            wake_others=(lambda: None) if wakeup is None else wakeup.ring,
            results=open_results(settings),
            limits=Limits(
                hosts=frozenset(api.api_allowed_hosts),
                body_bytes=api.api_max_body_bytes,
                streams=api.api_max_streams,
                streams_per_token=api.api_max_streams_per_token,
                streams_per_address=api.api_max_streams_per_address,
            ),
            settings=settings,
            safe_mode=api.safe_mode,
        )
        intervals = LoopIntervals(
            poll=_poll(settings),
            pool_poll=timedelta(seconds=settings.pools.gpu_pool_policy_period_s),
            sweep=timedelta(seconds=settings.jobs.sweep_interval_sec),
        )
        server = ApiServer(create_app(state), listener, on_stop=state.stop_waiting)
        return replace(
            build_replica(state, control, intervals),
            server=server,
            wakeup=wakeup,
            gateway=_gateway(settings, state.metrics),
            push_every=timedelta(seconds=settings.health.orchestrator_poll_sec),
        )
    except BaseException:
        listener.close()
        raise


def build_replica(
    state: ServerState,
    control: Control,
    intervals: LoopIntervals,
    *,
    clock: Clock | None = None,
    threads: Threads | None = None,
) -> Replica:
    """The loops of a replica, joined to what its requests share; in a simulation with its clock and threads."""
    clock, services = clock or SystemClock(), state.services
    return Replica(
        state=state,
        control=control,
        intervals=intervals,
        sweeper=Sweeper(services, clock, intervals.sweep, state.announce_queued, intervals.staging),
        inbox=LeaderInbox(services, control.reconciler, clock, intervals.inbox),
        clock=clock,
        threads=threads or SystemThreads(),
    )


def bus_opener(settings: Settings, services: Services, control: Control | None) -> Callable[[Writer], StreamBus] | None:
    """None without REDIS_URL. What speaks to Redis is imported only where there is one."""
    if settings.streams.redis_url is None:
        return None
    try:
        opening = import_module("herdsman.redis.redis_client")
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise InvalidSettings(
            "REDIS_URL is set, but the package redis is not installed: pip install 'herdsman[redis]'"
        ) from error

    def open_bus(writer: Writer) -> StreamBus:
        around = partial(ReplicaHooks, wake=writer.wake, ring=writer.ring)
        if control is None:
            return opening.open_streams(settings, services, around())
        leadership = control.leadership
        leads = around(leads=lambda: leadership.term is not None, tick=control.reconciler.tick)
        return opening.open_streams(settings, services, leads)

    return open_bus


def push_cycle(settings: Settings, services: Services, control: Control) -> None:
    """Pushes the metrics of a single cycle, where there is a push gateway: the program ends before any scrape."""
    metrics = Metrics()
    gateway = _gateway(settings, metrics)
    if gateway is not None:
        metrics.add(DatabaseCollector(services, control))
        gateway.push()


def _gateway(settings: Settings, metrics: Metrics) -> PushGateway | None:
    url = settings.api.metrics_pushgateway_url
    return None if url is None else PushGateway(url, push_name(settings), metrics.registry)


def listening(settings: Settings) -> Listening:
    api, tls = settings.api, None
    if (api.api_tls_certificate is None) != (api.api_tls_key is None):
        raise InvalidSettings("API_TLS_CERTIFICATE and API_TLS_KEY belong together: set both, or none")
    if api.api_tls_certificate is not None and api.api_tls_key is not None:
        tls = Tls(certificate=Path(api.api_tls_certificate), key=Path(api.api_tls_key))
    return Listening(
        host=api.api_host,
        port=api.api_port,
        tls=tls,
        behind_proxy=api.api_behind_proxy,
        called=api.api_url,
        names=api.api_allowed_hosts,
        proxies=api.api_proxies,
    )


def _poll(settings: Settings) -> timedelta:
    """Observing processes of this machine costs nothing, so a worker need not wait to be noticed."""
    chosen = timedelta(seconds=settings.health.orchestrator_poll_sec)
    usual = settings.origin("ORCHESTRATOR_POLL_SEC") is Origin.DEFAULT
    return min(chosen, POLL_LOCAL) if usual and settings.providers.provider == LOCAL else chosen
