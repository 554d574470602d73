"""One replica of the control plane: its API, its loops and what they share, built from the settings."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Event

from herdsman.context import Services
from herdsman.db.notify import Wakeup, open_wakeup
from herdsman.errors import InvalidSettings
from herdsman.fleet.execute import WorkerAccess
from herdsman.fleet.reconcile import LeaderInbox
from herdsman.jobs.dispatch import Dispatcher
from herdsman.jobs.sweep import Sweeper
from herdsman.ports import Clock, SystemClock, SystemThreads, Threads
from herdsman.redis.announce import ReplicaHooks
from herdsman.redis.bus import StreamBus
from herdsman.server.app import create_app
from herdsman.server.http_server import ApiServer, Listening, Tls, bind
from herdsman.server.limits import Limits
from herdsman.server.metrics import DatabaseCollector
from herdsman.server.replica_loops import LoopIntervals, ReplicaLoops
from herdsman.server.state import ServerState, build_state
from herdsman.server.wiring import Control, open_control, open_keyring, open_results
from herdsman.settings import Origin, Settings
from herdsman.settings.environment import push_name
from herdsman.settings.options import LOCAL
from herdsman.telemetry.metric_families import Metrics, PushGateway

POLL_LOCAL = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    state: ServerState
    control: Control
    loops: ReplicaLoops
    server: ApiServer | None
    """None in a simulation, where nothing is said over HTTP."""
    wakeup: Wakeup | None
    gateway: PushGateway | None
    push_every: timedelta

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
            self.wakeup.start(self.state.dispatcher.wake)
        if self.state.bus is not None:
            self.state.bus.start()

    def run(self, stopping: Event) -> None:
        self.loops.run(stopping)

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
        return build_replica(
            state,
            control,
            intervals,
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
    server: ApiServer | None = None,
    wakeup: Wakeup | None = None,
    gateway: PushGateway | None = None,
    push_every: timedelta = timedelta(minutes=1),
    clock: Clock | None = None,
    threads: Threads | None = None,
) -> Replica:
    """The loops of a replica, joined to what its requests share; also in a simulation, with its clock and threads."""
    clock, services = clock or SystemClock(), state.services
    loops = ReplicaLoops(
        sweeper=Sweeper(services, clock, intervals.sweep, state.announce_queued, intervals.staging),
        leadership=control.leadership,
        reconciler=control.reconciler,
        inbox=LeaderInbox(services, control.reconciler, clock, intervals.inbox),
        intervals=intervals,
        health=control.loops,
        clock=clock,
        threads=threads or SystemThreads(),
    )
    return Replica(
        state=state,
        control=control,
        loops=loops,
        server=server,
        wakeup=wakeup,
        gateway=gateway,
        push_every=push_every,
    )


def bus_opener(
    settings: Settings, services: Services, control: Control | None
) -> Callable[[Dispatcher], StreamBus] | None:
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

    def open_bus(dispatcher: Dispatcher) -> StreamBus:
        around = partial(ReplicaHooks, wake=dispatcher.wake, ring=dispatcher.ring)
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
