"""A Starlette app on a port of this machine, in a thread of its own, behind a proxy that breaks its connections."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

import uvicorn
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from herdsman.testing.proxy import Address, Proxy

HOST = "127.0.0.1"
IDLE_S = 60
STOPPED_WITHIN_S = 2.0
LAST_WORDS_S = 0.5
POLL_S = 0.01
STEP_S = 0.001
ANY_METHOD = ("GET", "POST", "PUT", "PATCH", "DELETE")


class AppServer:
    """Serves from `start` to `stop`. Its port can be closed and opened again meanwhile, from any other thread."""

    def __init__(
        self, app: ASGIApp, proxy: Proxy, *, name: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """`headers` are those of every response."""
        self._proxy = proxy
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
        # With the protocol named, or asyncio would not switch off Nagle's algorithm, which costs 40 ms an answer.
        self._behind = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._behind.bind((HOST, 0))
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    @property
    def url(self) -> str:
        return self._proxy.url

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._server.loop is not None, "the server has not been started"
        return self._server.loop

    def start(self) -> None:
        """Returns when requests are taken."""
        self._thread.start()
        self._server.listening.wait()
        self.open()

    def open(self) -> None:
        """Take connections again, on the same port."""

        async def open_port() -> None:
            self._proxy.open(self._behind.getsockname())

        self._do(open_port())

    def close(self, *, spare: Collection[Address] = ()) -> None:
        """Refuse connections, and cut those that are open: what a crash does."""

        async def close_port() -> None:
            self._proxy.close(spare=spare)

        self._do(close_port())

    def stop(self, *, spare: Collection[Address] = ()) -> None:
        """The end, whatever is open. Connections to spare have a moment to send what is on its way."""
        if not self._thread.is_alive():
            return
        self.close(spare=spare)
        if spare:
            self._do(self._proxy.drain(LAST_WORDS_S))
        self._do(self._proxy.release())
        self.loop.call_soon_threadsafe(self._server.stopping.set)
        self._thread.join()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._behind])
        finally:
            self._behind.close()
            self._server.listening.set()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result()


class _Server(uvicorn.Server):
    """Stops at once: uvicorn's own loop looks ten times a second whether it should, and then waits for everybody."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()
        self.stopping = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

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
