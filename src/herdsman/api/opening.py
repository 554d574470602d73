"""The API as the settings want it: server, dispatcher and the ear for other replicas, started and stopped together."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

from herdsman.api.app import create_app
from herdsman.api.context import ApiContext
from herdsman.api.failures import Failures
from herdsman.api.limits import Limits
from herdsman.api.open_streams import open_streams
from herdsman.api.routes.desk import open_desk
from herdsman.api.routes.look import Look
from herdsman.api.server import ApiServer, Listening, Tls
from herdsman.control.authenticator import Authenticator
from herdsman.control.dispatcher import Dispatcher
from herdsman.control.keyring import Keyring
from herdsman.control.services import Services
from herdsman.core.errors import InvalidSettings
from herdsman.ports import SystemClock
from herdsman.settings import Settings
from herdsman.settings.surroundings import push_name
from herdsman.store.wakeup import Wakeup, open_wakeup
from herdsman.telemetry.metrics import Metrics, PushGateway
from herdsman.wiring import Control, open_results


@dataclass(frozen=True, slots=True)
class Api:
    server: ApiServer
    dispatcher: Dispatcher
    wakeup: Wakeup | None
    bus: Any | None = None
    """Redis Streams, where there is a Redis."""
    gateway: PushGateway | None = None
    push_every: timedelta = timedelta(seconds=30)

    def start(self) -> None:
        self.server.start()
        if self.gateway is not None:
            self.gateway.start(self.push_every)
        if self.wakeup is not None:
            self.wakeup.start()
        if self.bus is not None:
            self.bus.start()

    def queued(self) -> None:
        """To be told when jobs were queued by something else than a request."""
        self.dispatcher.ring()
        if self.bus is not None:
            self.bus.resync_soon()

    def stop(self) -> None:
        if self.gateway is not None:
            self.gateway.stop()
        self.server.stop()
        if self.bus is not None:
            self.bus.stop()
        if self.wakeup is not None:
            self.wakeup.stop()


def open_api(settings: Settings, services: Services, keyring: Keyring, control: Control | None) -> Api:
    """Nothing listens before `start`."""
    clock, stopping = SystemClock(), Event()
    dispatcher = Dispatcher(services, clock, poll=timedelta(seconds=settings.database.sql_poll_sec))
    wakeup = open_wakeup(services.database, dispatcher.wake)
    if wakeup is not None:
        dispatcher.tell_others = wakeup.ring
    bus = open_streams(settings, services, control, dispatcher)
    admin = settings.api.admin_api_key
    context = ApiContext(
        services=services,
        authenticator=Authenticator(
            services, clock, keyring, admin_key=None if admin is None else admin.get_secret_value()
        ),
        keyring=keyring,
        dispatcher=dispatcher,
        control=control,
        bus=bus,
        results=open_results(settings),
        failures=Failures(clock),
        limits=Limits(
            hosts=frozenset(settings.api.api_allowed_hosts),
            body_bytes=settings.api.api_max_body_bytes,
            streams=settings.api.api_max_streams,
            streams_per_token=settings.api.api_max_streams_per_token,
            streams_per_address=settings.api.api_max_streams_per_address,
        ),
        settings=settings,
        safe_mode=settings.api.safe_mode,
        stopping=stopping,
    )

    def end_waiting() -> None:
        stopping.set()
        dispatcher.stop()

    app = create_app(context)
    url = settings.api.metrics_pushgateway_url
    gateway = None
    if url is not None:
        app.state.desk = open_desk(context)  # before the first request, which would make it
        gateway = PushGateway(url, push_name(settings), app.state.desk.metrics.registry)
    server = ApiServer(app, listening(settings), on_stop=end_waiting)
    every = timedelta(seconds=settings.health.orchestrator_poll_sec)
    return Api(server, dispatcher, wakeup, bus, gateway, every)


def push_cycle(settings: Settings, services: Services, control: Control) -> None:
    """What a single cycle has to tell a push gateway, where there is one: nobody asks a program that has ended."""
    url = settings.api.metrics_pushgateway_url
    if url is not None:
        metrics = Metrics()
        metrics.add(Look(services, control))
        PushGateway(url, push_name(settings), metrics.registry).push()


def listening(settings: Settings) -> Listening:
    api = settings.api
    return Listening(
        host=api.api_host,
        port=api.api_port,
        tls=_tls(api.api_tls_certificate, api.api_tls_key),
        behind_proxy=api.api_behind_proxy,
        called=api.api_url,
        names=api.api_allowed_hosts,
        proxies=api.api_proxies,
    )


def _tls(certificate: str | None, key: str | None) -> Tls | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise InvalidSettings("API_TLS_CERTIFICATE and API_TLS_KEY belong together: set both, or none")
    return Tls(certificate=Path(certificate), key=Path(key))
