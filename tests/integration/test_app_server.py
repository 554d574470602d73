"""The server of the fakes: connections are cut where they should be, and nothing waits."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from herdsman.testing.fakes.app_server import HOST, AppServer

BODY = "0123456789" * 10_000
AT_ONCE_S = 1.0


class Fake:
    def __init__(self) -> None:
        routes = [Route("/", self.whole), Route("/cut", self.cut), Route("/cut/{size:int}", self.cut_in_body)]
        self.server = AppServer(Starlette(routes=[*routes, Route("/hang", self.hang)]), name="fake")
        self.hanging = threading.Event()
        self.over = threading.Event()

    async def whole(self, _: Request) -> Response:
        return PlainTextResponse(BODY)

    async def cut(self, request: Request) -> Response:
        self.server.cut(request)
        return PlainTextResponse(BODY)

    async def cut_in_body(self, request: Request) -> Response:
        return self.server.cut_in_body(request, PlainTextResponse(BODY), request.path_params["size"])

    async def hang(self, _: Request) -> Response:
        self.hanging.set()
        while not self.over.is_set():  # noqa: ASYNC110  set by the test
            await asyncio.sleep(0.01)
        return PlainTextResponse(BODY)


@pytest.fixture
def fake() -> Iterator[Fake]:
    fake = Fake()
    fake.server.start()
    yield fake
    fake.over.set()
    fake.server.stop()


def connected(fake: Fake) -> socket.socket:
    return socket.create_connection(fake.server.address, timeout=10)


def received(fake: Fake, path: str) -> bytes:
    """All that comes until the other side ends the connection."""
    with connected(fake) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_everything_is_passed_on_and_a_connection_is_used_again(fake: Fake) -> None:
    with httpx.Client(base_url=fake.server.url, trust_env=False) as client:
        for _ in range(3):
            assert client.get("/").text == BODY


def test_a_connection_is_cut_before_the_first_byte(fake: Fake) -> None:
    assert received(fake, "/cut") == b""
    assert received(fake, "/").endswith(BODY.encode())


@pytest.mark.parametrize("size", [0, 1, 12_345, 99_999])
def test_a_connection_is_cut_in_the_body(fake: Fake, size: int) -> None:
    head, _, body = received(fake, f"/cut/{size}").partition(b"\r\n\r\n")
    assert b"content-length: 100000" in head
    assert body == BODY[:size].encode()


def test_a_closed_port_refuses_cuts_what_is_open_and_opens_again(fake: Fake) -> None:
    with connected(fake) as connection:
        connection.sendall(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        assert fake.hanging.wait(10)
        fake.server.close()
        assert connection.recv(10) == b""
    with pytest.raises(ConnectionRefusedError), connected(fake):
        pass
    fake.server.open()
    assert received(fake, "/").endswith(BODY.encode())


def test_a_port_is_taken_while_it_is_open_and_free_after_the_end() -> None:
    fake = Fake()
    fake.server.start()
    port = fake.server.address[1]
    with pytest.raises(OSError, match="in use"):
        AppServer(Starlette(), name="another", host=HOST, port=port)
    fake.server.stop()
    with contextlib.closing(socket.create_server((HOST, port))):
        pass


def test_it_stops_at_once_whatever_is_open() -> None:
    fake = Fake()
    began = time.monotonic()
    fake.server.start()
    with connected(fake) as idle, connected(fake) as half, connected(fake) as hanging:
        half.sendall(b"GET /")
        hanging.sendall(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        assert fake.hanging.wait(10)
        fake.over.set()
        fake.server.stop()
        assert time.monotonic() - began < AT_ONCE_S
        assert [each.recv(10) for each in (idle, half, hanging)] == [b"", b"", b""]
