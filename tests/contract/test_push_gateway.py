"""METRICS_PUSHGATEWAY_URL: a gateway gets the metrics of programs that nobody can ask, such as a cycle of cron."""

from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Thread
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from herdsman.context import Services
from herdsman.server.replica import push_cycle
from herdsman.settings import load_settings
from herdsman.telemetry.metric_families import PushGateway
from tests.support.builders import a_job
from tests.unit.test_settings_defaults import NOWHERE


class Gateway(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: SimpleQueue[tuple[str, str, str, str]] = SimpleQueue()
        self.status = 200

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        gateway = cast("Gateway", self.server)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        gateway.got.put((self.command, self.path, self.headers.get("Authorization", ""), body))
        self.send_response(gateway.status)
        self.end_headers()

    do_DELETE = do_PUT  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Silence."""


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as running:
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def registry() -> CollectorRegistry:
    chosen = CollectorRegistry()
    Gauge("herdsman_answer", "It.", registry=chosen).set(42)
    return chosen


def test_a_cycle_pushes_what_a_page_of_metrics_would_show(services: Services, gateway: Gateway) -> None:
    a_job(services)
    env = {"METRICS_PUSHGATEWAY_URL": f"http://{gateway.place}/", "ORCHESTRATOR_INSTANCE_ID": "cron-a"}
    push_cycle(load_settings(env, NOWHERE), services, cast("Any", None))
    method, path, _, body = gateway.got.get(timeout=10)
    assert (method, path) == ("PUT", "/metrics/job/herdsman/instance/cron-a")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }
    assert found["herdsman_jobs", "pending"] == 1


def test_a_password_goes_along_and_odd_names_are_coded(gateway: Gateway, registry: CollectorRegistry) -> None:
    PushGateway(f"http://me:secret@{gateway.place}/at", "rack/1", registry).push()
    _, path, told, body = gateway.got.get(timeout=10)
    assert path == "/at/metrics/job/herdsman/instance@base64/cmFjay8x"
    assert told == f"Basic {b64encode(b'me:secret').decode()}"
    assert "herdsman_answer 42.0" in body


def test_a_replica_takes_its_metrics_back_when_it_stops(gateway: Gateway, registry: CollectorRegistry) -> None:
    pushing = PushGateway(f"http://{gateway.place}", "a", registry)
    pushing.start(timedelta(hours=1))
    assert gateway.got.get(timeout=10)[0] == "PUT"
    pushing.stop()
    assert [gateway.got.get(timeout=10)[0] for _ in range(gateway.got.qsize())][-1] == "DELETE"


def test_a_gateway_that_fails_is_a_warning_without_its_password(gateway: Gateway, registry: CollectorRegistry) -> None:
    gateway.status = 500
    with capture_logs() as said:
        PushGateway(f"http://me:secret@{gateway.place}", "a", registry).push()
        PushGateway("http://me:secret@127.0.0.1:1", "a", registry).push()
    assert [(each["event"], each["reason"]) for each in said] == [
        ("metrics.not_pushed", "HTTPStatusError"),
        ("metrics.not_pushed", "ConnectError"),
    ]
    assert "secret" not in str(said)
