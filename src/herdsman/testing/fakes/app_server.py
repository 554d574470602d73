"""A Starlette app on a port of this machine, in a thread of its own, whose connections break as networks and crashes
break them: a request ends without a response, or in the middle of one, and the port closes and opens again.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from typing import Any

import uvicorn
from starlette.requests import HTTPConnection
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

HOST = "127.0.0.1"
IDLE_S = 60
STOPPED_WITHIN_S = 2.0
LAST_WORDS_S = 0.5
POLL_S = 0.01
STEP_S = 0.001
ACCEPTED_WITHIN = 4
"""So many rounds of the event loop after it was accepted a connection is known to the server."""
ANY_METHOD = ("GET", "POST", "PUT", "PATCH", "DELETE")

Address = tuple[str, int]


class AppServer:
    """Serves from `start` to `stop`. Its port can be closed and opened again meanwhile, from any other thread."""

    def __init__(
        self, app: ASGIApp, *, name: str, host: str = HOST, port: int = 0, headers: Mapping[str, str] | None = None
    ) -> None:
        """`headers` are those of every response. `OSError` if the port is taken."""
        self._server = _Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                lifespan="off",
                ws="websockets-sansio",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=[("server", name), *(headers or {}).items()],
                ws_ping_interval=None,
                ws_per_message_deflate=False,
                timeout_keep_alive=IDLE_S,
            )
        )
        self._family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if port:
            # Sockets that share a port do not notice each other, so that another fake is looked for without sharing.
            with socket.socket(self._family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        # Bound, but not listening: the port stays ours while connections are refused.
        self._reserved = self._bound(host, port)
        self.address: Address = (host, self._reserved.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    @property
    def url(self) -> str:
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Returns when requests are taken."""
        self._thread.start()
        self._server.listening.wait()

    def open(self) -> None:
        """Take connections again, on the same port."""
        self._do(self._server.startup([self._bound(*self.address)]))

    def close(self, *, spare: Collection[Address] = ()) -> None:
        """Refuse connections, and cut those that are open, but for the ones to spare: what a crash does."""

        async def close_port() -> None:
            for server in self._server.servers:
                server.close()
            for _ in range(ACCEPTED_WITHIN):
                for address, transport in self._connections():
                    if address not in spare:
                        _cut(transport)
                await asyncio.sleep(0)

        self._do(close_port())

    def cut(self, connection: HTTPConnection) -> None:
        """End it before another byte is sent. To be called by the app."""
        for address, transport in self._connections():
            if address == client_of(connection):
                _cut(transport)

    def cut_in_body(self, connection: HTTPConnection, response: Response, size: int) -> Response:
        """The same response, but the connection ends after so many bytes of its body."""

        async def pieces() -> AsyncIterator[bytes]:
            yield bytes(response.body[:size])
            self.cut(connection)
            await asyncio.sleep(POLL_S)

        return StreamingResponse(pieces(), response.status_code, dict(response.headers))

    def stop(self, *, spare: Collection[Address] = ()) -> None:
        """The end, whatever is open. Connections to spare have a moment to send what is on its way."""
        if not self._thread.is_alive():
            return
        self.close(spare=spare)
        deadline = time.monotonic() + LAST_WORDS_S
        while self._server.server_state.connections and time.monotonic() < deadline and spare:
            time.sleep(STEP_S)
        self.close()
        self._server.loop.call_soon_threadsafe(self._server.stopping.set)
        self._thread.join()

    def _connections(self) -> list[tuple[Address, asyncio.Transport]]:
        """With the address that the app sees as its client."""
        transports = [each.transport for each in self._server.server_state.connections]
        return [(tuple(each.get_extra_info("peername")[:2]), each) for each in transports]

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._bound(*self.address)])
        finally:
            self._reserved.close()
            self._server.listening.set()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._server.loop).result()

    def _bound(self, host: str, port: int) -> socket.socket:
        # With the protocol named, or asyncio would not switch off Nagle's algorithm, which costs 40 ms an answer.
        bound = socket.socket(self._family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            bound.bind((host, port))
        except OSError:
            bound.close()
            raise
        return bound


def _cut(transport: asyncio.Transport) -> None:
    """A client that has read everything sees an orderly end of the stream, without a byte more."""
    with contextlib.suppress(OSError):
        transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    transport.abort()


class _Server(uvicorn.Server):
    """Stops at once: uvicorn's own loop looks ten times a second whether it should, and then waits for everybody."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()
        self.stopping = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop

    async def main_loop(self) -> None:
        self.loop = asyncio.get_running_loop()
        while not self.stopping.is_set():
            await self.on_tick(0)  # it sets the date that responses carry
            self.listening.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002  uvicorn's
        for server in self.servers:
            server.close()
        deadline = time.monotonic() + STOPPED_WITHIN_S
        state = self.server_state
        while (state.connections or state.tasks) and time.monotonic() < deadline:  # noqa: ASYNC110  uvicorn has none
            await asyncio.sleep(STEP_S)


async def sleep_unless(over: threading.Event, seconds: float) -> bool:
    """Whether it was over before the time had passed."""
    deadline = time.monotonic() + seconds
    while not over.is_set() and (left := deadline - time.monotonic()) > 0:  # noqa: ASYNC110  set by other threads
        await asyncio.sleep(min(left, POLL_S))
    return over.is_set()


def client_of(connection: HTTPConnection) -> Address:
    assert connection.client is not None
    return connection.client.host, connection.client.port
