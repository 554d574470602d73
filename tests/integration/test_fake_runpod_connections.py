"""No request goes down a used connection: it may have been closed meanwhile, and a create would be unclear."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from herdsman.ports import SystemClock
from herdsman.providers.runpod import RunpodProvider
from tests.support.runpod import some_options

ANSWER = b'{"pods": []}'


class KeepsConnections(BaseHTTPRequestHandler):
    """It would answer any number of requests on one connection."""

    protocol_version = "HTTP/1.1"
    callers: list[int]

    def do_GET(self) -> None:
        self.callers.append(self.client_address[1])
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    KeepsConnections.callers = []
    with ThreadingHTTPServer(("127.0.0.1", 0), KeepsConnections) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v2"
        server.shutdown()
        thread.join()


def test_each_request_has_a_connection_of_its_own(url: str) -> None:
    provider = RunpodProvider(some_options(api_url=url), SystemClock())
    for _ in range(3):
        assert provider.list_instances() == []
    provider.close()
    assert len(set(KeepsConnections.callers)) == 3
