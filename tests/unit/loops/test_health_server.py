"""Probes are answered, whatever else goes wrong."""

import inspect
import logging
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from herdsman.loops import HealthServer, Watchdog
from herdsman.loops.health import LONGEST_REQUEST
from tests.unit.loops.doubles import PATIENCE, ask, eventually


@contextmanager
def serving(**given: Any) -> Generator[HealthServer]:
    server = HealthServer(host="127.0.0.1", port=0, **given)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def fails() -> bool:
    raise OSError("no sight")


def test_health_server_liveness() -> None:
    with serving() as server:
        assert server.address is not None
        host, port = server.address
        answer = urllib.request.urlopen(f"http://{host}:{port}/health/live", timeout=PATIENCE)
        with answer:
            assert answer.status == 200
            assert answer.read() == b'{"status": "healthy"}'


def test_health_server_readiness() -> None:
    ready = True
    with serving(readiness_check=lambda: ready) as server:
        assert server.address is not None
        url = f"http://127.0.0.1:{server.address[1]}/health/ready"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            assert (answer.status, answer.read()) == (200, b'{"status": "healthy"}')
        ready = False
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url, timeout=PATIENCE)
        with caught.value:
            assert (caught.value.code, caught.value.read()) == (503, b'{"status": "unhealthy"}')


def test_its_defaults_are_those_of_the_contract() -> None:
    parameters = inspect.signature(HealthServer).parameters
    assert {name: parameters[name].default for name in ("host", "port", "readiness_check")} == {
        "host": "0.0.0.0",
        "port": 8080,
        "readiness_check": None,
    }
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in parameters.values())


@pytest.mark.parametrize("path", ["/", "/health", "/health/live/", "/health/liveness", "/%2e%2e"])
def test_other_paths_are_not_found_and_say_so_in_json(path: str) -> None:
    with serving() as server:
        reply = ask(server.address, path)
        assert (reply.status, reply.kind, reply.body["error"]) == (404, "application/json", "not found")
        assert reply.length == str(len(reply.text))


def test_head_is_get_without_its_body() -> None:
    with serving() as server:
        got, headed = ask(server.address, "/health/live?x=1"), ask(server.address, "/health/live", "HEAD")
        assert (headed.status, headed.text, headed.length) == (200, "", got.length)
        assert ask(server.address, "/health/live", "POST").status == 405


def test_requests_are_not_logged(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), serving() as server:
        ask(server.address, "/health/live")
        ask(server.address, "/nothing")
    assert (caplog.text, *capfd.readouterr()) == ("", "", "")


def test_start_and_stop_may_be_repeated_and_stop_closes_the_socket() -> None:
    server = HealthServer(host="127.0.0.1", port=0)
    assert server.address is None
    server.stop()
    server.start()
    address = server.address
    assert address is not None
    server.start()
    assert server.address == address
    server.stop()
    server.stop()
    assert server.address is None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=PATIENCE)
    again = HealthServer(host="127.0.0.1", port=address[1])
    again.start()
    assert ask(again.address, "/health/live").status == 200
    again.stop()


def test_liveness_answers_while_readiness_hangs() -> None:
    release = threading.Event()
    with serving(readiness_check=lambda: release.wait(60), readiness_timeout=0.2) as server:
        hung = ask(server.address, "/health/ready")
        assert (hung.status, hung.body["status"]) == (503, "unhealthy")
        assert "takes over 0.2 s" in hung.body["error"]
        assert quickest(lambda: ask(server.address, "/health/live").status == 200) < 0.1
        assert ask(server.address, "/metrics").text.splitlines()[2] == "wink_health_ready 0"
        release.set()
        eventually(lambda: ask(server.address, "/health/ready").status == 200)


def test_a_hanging_check_is_begun_only_once() -> None:
    release, begun = threading.Event(), list[int]()

    def hang() -> bool:
        begun.append(1)
        return release.wait(60)

    with serving(readiness_check=hang, readiness_timeout=0.1) as server:
        for _ in range(5):
            assert ask(server.address, "/health/ready").status == 503
        assert len(begun) == 1
        release.set()


@pytest.mark.parametrize("path", ["/health/ready", "/health/live"])
def test_a_check_that_fails_is_an_answer(path: str) -> None:
    with serving(readiness_check=fails, liveness_check=fails) as server:
        reply = ask(server.address, path)
        assert (reply.status, reply.body["status"]) == (503, "unhealthy")


def test_details_stand_beside_the_status_and_never_replace_it() -> None:
    with serving(details=lambda: {"status": "odd", "loops": {"a": 1}}) as server:
        assert ask(server.address, "/health/ready").body == {"status": "healthy", "loops": {"a": 1}}


def test_liveness_answers_while_two_hundred_slow_clients_hold_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are cut off because they are many, long before their deadline."""
    monkeypatch.setattr("herdsman.loops.health.READ_DEADLINE", 600.0)
    with serving() as server:
        assert server.address is not None
        slow = [socket.create_connection(server.address, timeout=PATIENCE) for _ in range(200)]
        try:
            for each in slow:
                each.sendall(b"GET /health/live HTTP/1.1\r\nX-Slow: ")
        except ConnectionError:
            pass  # the oldest are cut off already
        assert quickest(lambda: ask(server.address, "/health/live").status == 200) < 0.1
        eventually(lambda: threading.active_count() < 100)
        for each in slow:
            each.close()


def test_a_client_that_trickles_is_cut_off_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herdsman.loops.health.READ_DEADLINE", 0.3)
    with serving() as server:
        assert server.address is not None
        with socket.create_connection(server.address, timeout=PATIENCE) as client:
            assert trickled_until_cut(client)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /health/live HTTP/1.1\r\nX: " + b"x" * LONGEST_REQUEST, b"431"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"\xff\xfe\x00 / HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /health/live HTTP/1.0\n\n", b"200"),
    ],
)
def test_odd_requests_get_an_answer(sent: bytes, status: bytes) -> None:
    with serving() as server:
        assert server.address is not None
        with socket.create_connection(server.address, timeout=PATIENCE) as client:
            client.sendall(sent)
            assert client.recv(4096).split()[1] == status
        assert ask(server.address, "/health/live").status == 200


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_liveness_fails_with_a_dead_watchdog() -> None:

    class Dies(Watchdog):
        def _check_heartbeats(self) -> list[tuple[str, float]]:
            raise SystemExit

    watchdog = Dies([], check_interval=0.01)
    watchdog.start()
    with serving(liveness_check=lambda: watchdog.alive) as server:
        eventually(lambda: ask(server.address, "/health/live").status == 503)


def test_it_listens_on_ipv6_too() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    server = HealthServer(host="::1", port=0)
    server.start()
    assert server.address is not None
    with socket.create_connection(server.address, timeout=PATIENCE) as client:
        client.sendall(b"GET /health/live HTTP/1.1\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
    server.stop()


def quickest(holds: Callable[[], bool], tries: int = 20) -> float:
    """The best of a few: this machine may be busy with something else."""
    times = list[float]()
    for _ in range(tries):
        begun = time.perf_counter()
        assert holds()
        times.append(time.perf_counter() - begun)
    return min(times)


def trickled_until_cut(client: socket.socket) -> bool:
    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            client.sendall(b"G")
            time.sleep(0.02)
    except ConnectionError:
        return True
    return False
