"""X9 on a real socket: what comes too slowly is cut off, and stopping waits for nobody who waits."""

import resource
import socket
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Thread

import httpx
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from herdsman.access.rules import Role
from herdsman.errors import InvalidSettings
from herdsman.server import http_server as server_module
from herdsman.server.http_server import ApiServer, Listening, Tls, bind, descriptor_shortage
from herdsman.server.state import ServerState
from tests.api.conftest import Tokens
from tests.support.up_command import until

PATIENCE = 20.0
SHORT = Listening(head_deadline=timedelta(milliseconds=300), connections=5, grace=timedelta(seconds=2))


@contextmanager
def serving(app: FastAPI, state: ServerState, listening: Listening = SHORT) -> Generator[ApiServer]:
    server = ApiServer(app, bind(listening), on_stop=state.stop_waiting)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def connected(server: ApiServer) -> Generator[socket.socket]:
    url = httpx.URL(server.url)
    assert url.port is not None
    with closing(socket.create_connection((url.host, url.port), timeout=PATIENCE)) as line:
        yield line


def ended(line: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = [b""]
    try:
        while part := line.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        return b"".join(parts)
    return b"".join(parts)


@pytest.mark.parametrize("begun", [b"", b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nx: "])
def test_a_head_that_does_not_come_is_cut_off(app: FastAPI, state: ServerState, begun: bytes) -> None:
    with serving(app, state) as server, connected(server) as line:
        line.sendall(begun)
        assert ended(line) == b""


def test_a_head_that_trickles_is_cut_off(app: FastAPI, state: ServerState) -> None:
    with serving(app, state) as server, connected(server) as line, pytest.raises(OSError):
        for _ in range(400):
            line.sendall(b"x")
            time.sleep(0.05)


def test_the_second_request_of_a_line_has_its_deadline_too(app: FastAPI, state: ServerState) -> None:
    with serving(app, state) as server, connected(server) as line:
        line.sendall(b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert line.recv(65_536).startswith(b"HTTP/1.1 200")
        line.sendall(b"GET /health/live HT")
        assert b"200" not in ended(line)


def test_a_whole_request_is_not_cut_off_while_it_is_served(app: FastAPI, state: ServerState, tokens: Tokens) -> None:
    """A long poll lasts longer than a head may take."""
    header = tokens.header(Role.WORKER, "w1")
    with serving(app, state) as server:
        began = time.monotonic()
        answer = httpx.post(f"{server.url}/jobs/claim", json={"wait_seconds": 1}, headers=header, timeout=PATIENCE)
        assert answer.json() == {"claims": []}
        assert time.monotonic() - began > SHORT.head_deadline.total_seconds()


def test_more_lines_than_allowed_are_turned_away(app: FastAPI, state: ServerState) -> None:
    many = Listening(connections=2)
    with (
        serving(app, state, many) as server,
        connected(server),
        connected(server),
        connected(server) as third,
    ):
        third.sendall(b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert ended(third).startswith(b"HTTP/1.1 503") or ended(third) == b""


def test_a_client_that_does_not_read_its_answers_is_cut_off(app: FastAPI, state: ServerState, tokens: Tokens) -> None:
    """It holds the only place that there is, until its answers have stayed unread for too long."""
    one = Listening(connections=1, reader_deadline=timedelta(milliseconds=200), grace=timedelta(seconds=1))
    viewer = tokens.header(Role.VIEWER)["authorization"]
    asked = f"GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {viewer}\r\n\r\n".encode()

    def served(url: str) -> bool:
        try:
            return httpx.get(f"{url}/health/live", timeout=PATIENCE).status_code == 200
        except httpx.TransportError:
            return False

    with serving(app, state, one) as server, connected(server) as line:
        line.sendall(asked * 90)
        assert not served(server.url)
        until = time.monotonic() + PATIENCE
        while not served(server.url) and time.monotonic() < until:
            time.sleep(0.02)
        assert served(server.url)
        assert ended(line).count(b"HTTP/1.1 200") < 90


def test_stopping_ends_long_polls_at_once(app: FastAPI, state: ServerState, tokens: Tokens) -> None:
    header = tokens.header(Role.WORKER, "w1")
    answers: list[httpx.Response] = []
    with serving(app, state) as server:
        url = f"{server.url}/jobs/claim"
        poll = Thread(
            target=lambda: answers.append(httpx.post(url, json={"wait_seconds": 60}, headers=header, timeout=PATIENCE))
        )
        poll.start()
        while state.writer.waiting == 0:
            time.sleep(0.01)
    poll.join(PATIENCE)
    assert [answer.json() for answer in answers] == [{"claims": []}]
    assert not server.alive


def test_a_100_mb_body_on_a_socket_is_answered_or_cut_off(app: FastAPI, state: ServerState, tokens: Tokens) -> None:
    header = {**tokens.header(Role.SUBMITTER), "content-type": "application/json"}

    def streamed() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1_048_576

    with serving(app, state) as server:
        try:
            answer = httpx.post(f"{server.url}/jobs/submit", content=streamed(), headers=header, timeout=PATIENCE)
        except httpx.TransportError:
            pass
        else:
            assert answer.status_code == 413
        assert httpx.get(f"{server.url}/health/live", timeout=PATIENCE).status_code == 200


@pytest.mark.parametrize(
    "head",
    ["GET /health/live HTTP/1.1\r\n\r\n", "GET /health/live HTTP/1.1\r\nx\r\n\r\n", "\x00\x01\r\n\r\n"],
)
def test_no_host_or_no_http_is_a_400(app: FastAPI, state: ServerState, head: str) -> None:
    with serving(app, state) as server, connected(server) as line:
        line.sendall(head.encode())
        assert line.recv(65_536)[9:12] in (b"400", b"421")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "herd.example", "::"])
def test_x1_plain_http_does_not_leave_the_machine(host: str) -> None:
    with pytest.raises(InvalidSettings, match="API_HOST"):
        bind(Listening(host=host))
    try:
        bind(Listening(host=host, behind_proxy=True)).close()
    except InvalidSettings as error:  # this machine may not have the address
        assert "plain HTTP" not in str(error)


def test_a_port_that_is_taken_is_named(app: FastAPI, state: ServerState) -> None:
    with serving(app, state) as server:
        port = httpx.URL(server.url).port
        assert port is not None
        with pytest.raises(InvalidSettings, match=str(port)):
            bind(Listening(port=port))


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = Tls(certificate=tmp_path / "no.pem", key=tmp_path / "no.key")
    with pytest.raises(InvalidSettings, match=r"no\.pem cannot be used"):
        bind(Listening(tls=missing))


@pytest.mark.parametrize(
    ("used", "said"), [(921, None), (922, "run out"), (1021, "run out"), (1022, "no descriptor is left")]
)
def test_a_shortage_of_descriptors_is_told_before_and_when_there_is_none(used: int, said: str | None) -> None:
    told = descriptor_shortage(used, 1024)
    assert told is None if said is None else said in (told or "")


def test_running_out_of_descriptors_is_logged(
    app: FastAPI, state: ServerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "DESCRIPTORS_EVERY", 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with capture_logs() as logged, serving(app, state) as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # more are in use already
        try:
            until(lambda: "api.descriptors" in {each["event"] for each in logged})
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        until(lambda: "api.descriptors_again" in {each["event"] for each in logged})
        assert httpx.get(f"{server.url}/health/live", timeout=PATIENCE).status_code == 200
    assert "no descriptor is left" in next(each["said"] for each in logged if each["event"] == "api.descriptors")
