"""The app on a port of this machine, in a thread of this process, and the limits of its connections."""

import asyncio
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar, cast

import structlog
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from herdsman.errors import InvalidSettings
from herdsman.server.certificate import read_certificate, require_valid

log = structlog.get_logger()

BACKLOG = 2048
_STARTED_WITHIN = timedelta(seconds=30)
_POLL = timedelta(milliseconds=10)
DESCRIPTORS_EVERY = 20
"""Ticks of the server, of which there are ten a second."""
MANY_DESCRIPTORS = 0.9
SPARE_DESCRIPTORS = 2
_DESCRIPTORS = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where, and how many."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes any that is free."""
    tls: Tls | None = None
    behind_proxy: bool = False
    """A proxy in front of us speaks TLS; without one, plain HTTP stays on this machine."""
    called: str | None = None
    """Where clients find it, if that is not where it listens: the URL of a proxy, or one with the certificate's name."""
    names: Collection[str] = ()
    """Those by which it may be called, besides this machine's own."""
    proxies: Sequence[str] = ()
    """The addresses of proxies whose word on the client's address is taken."""
    head_deadline: timedelta = timedelta(seconds=15)
    reader_deadline: timedelta = timedelta(seconds=60)
    """How long a client may leave a full buffer of answers unread."""
    keep_alive: timedelta = timedelta(seconds=75)
    connections: int = 10_000
    grace: timedelta = timedelta(seconds=5)
    """How long requests that are being served may take to end when the server stops."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that listens. Nobody is answered before a server runs on it, but its URL is known."""

    listening: Listening
    socket: socket.socket
    url: str
    """One that can be called, from this machine at least; never the address that stands for all of them."""

    def close(self) -> None:
        self.socket.close()


def bind(listening: Listening) -> Listener:
    """Raises `InvalidSettings` when the port is taken, or tokens would travel in plain text."""
    try:
        here = listening.host == "localhost" or ip_address(listening.host).is_loopback
    except ValueError:
        here = False
    if listening.tls is None and not listening.behind_proxy and not here:
        raise InvalidSettings(
            f"API_HOST is {listening.host}: plain HTTP would carry tokens over the network;"
            " give a certificate and a key, or say that a proxy in front speaks TLS"
        )
    host = _callable_host(listening)
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((listening.host, listening.port))
        bound.listen(BACKLOG)  # until then another process could bind the same port
    except OSError as error:
        bound.close()
        raise InvalidSettings(
            f"port {listening.port} of {listening.host} cannot be taken: {error.strerror};"
            " set another API_PORT, or let herdsman up --port 0 take any that is free"
        ) from error
    if host is None:
        assert listening.called is not None
        return Listener(listening, bound, listening.called)
    scheme, port = "http" if listening.tls is None else "https", bound.getsockname()[1]
    return Listener(listening, bound, f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}")


class ApiServer:
    def __init__(self, app: FastAPI, listener: Listener, *, on_stop: Callable[[], None]) -> None:
        """`on_stop` ends whatever waits for a client: long polls and streams."""
        self._listener = listener
        self._on_stop = on_stop
        listening = listener.listening
        tls = listening.tls
        self._server = _Server(
            uvicorn.Config(
                app,
                http=type("ListeningConnection", (Connection,), {"listening": listening}),
                loop="asyncio" if find_spec("uvloop") is None else "uvloop",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=bool(listening.proxies),
                forwarded_allow_ips=list(listening.proxies),
                backlog=BACKLOG,
                timeout_keep_alive=round(listening.keep_alive.total_seconds()),
                timeout_graceful_shutdown=max(1, round(listening.grace.total_seconds())),
                ssl_certfile=None if tls is None else tls.certificate,
                ssl_keyfile=None if tls is None else tls.key,
                ssl_version=ssl.PROTOCOL_TLS_SERVER,
            )
        )
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)
        self._died: BaseException | None = None

    @property
    def url(self) -> str:
        return self._listener.url

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and self._server.started

    def start(self) -> None:
        """Returns when requests are taken."""
        self._thread.start()
        left = _STARTED_WITHIN / _POLL
        while not self._server.started and self._thread.is_alive() and left > 0:
            self._thread.join(_POLL.total_seconds())
            left -= 1
        if not self._server.started:
            self._server.should_exit = True
            self._listener.close()
            raise InvalidSettings(f"the API did not start: {self._died or 'it took too long'}")

    def stop(self) -> None:
        """What waits is answered at once; what works may finish within its grace."""
        self._on_stop()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join((self._listener.listening.grace * 3).total_seconds())

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listener.socket])
        except BaseException as error:  # noqa: BLE001  a thread has nobody else to tell
            self._died = error


class _Server(uvicorn.Server):
    """One that says when it runs out of descriptors: connections are then cut, and nobody else would tell."""

    _short_of: str | None = None

    async def on_tick(self, counter: int) -> bool:
        if counter % DESCRIPTORS_EVERY == 0:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            try:
                used = sum(1 for _ in _DESCRIPTORS.iterdir())  # noqa: ASYNC240  (nothing there waits)
            except FileNotFoundError:  # not on this system
                used = 0
            except OSError:  # there is none left even for this look
                used = limit
            short_of = descriptor_shortage(used, limit)
            if short_of is not None and short_of != self._short_of:
                log.error("api.descriptors", used=used, limit=limit, said=short_of)
            elif short_of is None and self._short_of is not None:
                log.info("api.descriptors_again", used=used, limit=limit)
            self._short_of = short_of
        return await super().on_tick(counter)


def descriptor_shortage(used: int, limit: int) -> str | None:
    """What it means that so many of them are in use."""
    way_out = f"raise the limit of {limit} open files (ulimit -n, LimitNOFILE), or let fewer clients connect"
    if used >= limit - SPARE_DESCRIPTORS:
        return f"no descriptor is left: connections are cut and files cannot be opened; {way_out}"
    return f"descriptors run out; {way_out}" if used > limit * MANY_DESCRIPTORS else None


def _callable_host(listening: Listening) -> str | None:
    """What to call where it listens on every address, which none of them is; None where only `called` will do."""
    certificate = None
    if listening.tls is not None:
        certificate = read_certificate(listening.tls.certificate, listening.tls.key)
        require_valid(listening.tls.certificate, certificate, datetime.now(UTC))
    if listening.host not in _EVERYWHERE:
        return listening.host
    here = _EVERYWHERE[listening.host]
    if certificate is None:
        return here
    known = {here, "localhost", *(name.lower() for name in listening.names)}
    found = next((name for name in certificate.names if name.lower() in known), None)
    if found is None and listening.called is None:
        names = ", ".join(certificate.names) or "none"
        raise InvalidSettings(
            f"API_HOST is {listening.host}, which is no address that can be called, and the certificate has to have the"
            f" name that is (it has {names}): set API_URL to https://NAME:PORT, with one that API_ALLOWED_HOSTS lists"
        )
    return found


# Python writes an empty host for all addresses as well.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104


MOST_AHEAD = 100
"""Requests that a client may send before it has read the answers to earlier ones."""
LARGEST_HEAD = 65_536

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TooManyAhead(Exception):
    """The parser answers it with 400, and closes the line."""


class Connection(HttpToolsProtocol):
    """One of uvicorn, which itself waits for the head of a request for ever, and keeps all of it."""

    listening: ClassVar[Listening]
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _in_body: bool = False
    _head: int = 0
    """Bytes that have come of a head that is not complete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        if len(self.connections) > self.listening.connections:
            self._refuse(_FULL)
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        # What ends a body may begin the next head: only pieces without a body are counted.
        before, in_body = cast("RequestResponseCycle | None", self.cycle), self._in_body
        super().data_received(data)
        if self.cycle is not before:
            self._head = 0
            self._cancel_deadline()
            return
        if not in_body:
            self._head += len(data)
            if self._head > LARGEST_HEAD:
                self._refuse(_HEAD_TOO_LARGE)
        if before is None or before.response_complete:
            self._expect_head()

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_AHEAD:
            raise TooManyAhead
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client does not read what it asked for, and answers pile up here; a slow one empties the pile in time."""
        super().pause_writing()
        if self._unread is None:
            wait = self.listening.reader_deadline.total_seconds()
            self._unread = self.loop.call_later(wait, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def _refuse(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()

    def _expect_head(self) -> None:
        """From the first byte on, or from the moment that a line is open and silent."""
        if self._deadline is None:
            wait = self.listening.head_deadline.total_seconds()
            self._deadline = self.loop.call_later(wait, self.transport.abort)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
