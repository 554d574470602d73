"""Keeps an HTTP server busy with one POST again and again, and spends as little as it can on that itself."""

import math
import multiprocessing
import selectors
import socket
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from typing import cast
from urllib.parse import urlsplit

from bench.peers.figures import percentile

PROCESSES = 2
SILENCE_S = 30.0
_END, _LENGTH = b"\r\n\r\n", b"\r\ncontent-length:"
_STATUS = slice(9, 12)


@dataclass(frozen=True, slots=True)
class Load:
    """Only an answer that says 2xx, before the time is up, is a request; p50 and p99 are in seconds."""

    requests: int
    per_second: float
    p50: float
    p99: float
    errors: int


class LoadFailed(Exception):
    """The clients could not reach the server, or one of them ended."""


def posts_per_second(url: str, body: bytes, headers: Mapping[str, str], clients: int, seconds: float) -> Load:
    """Each client keeps its connection, and sends the next request when it has the answer to the last."""
    shot = _shot(url, body, headers)
    processes = min(PROCESSES, clients)
    with ExitStack() as stack:
        shares = [len(range(number, clients, processes)) for number in range(processes)]
        pipes = [stack.enter_context(_process(shot, share, seconds)) for share in shares]
        for pipe in pipes:
            _hear(pipe, SILENCE_S, url)
        for pipe in pipes:
            pipe.send("go")
        tallies = [_hear(pipe, seconds + SILENCE_S, url) for pipe in pipes]
    return _load(tallies, seconds)


@dataclass(frozen=True, slots=True)
class _Shot:
    """What is sent, and where."""

    host: str
    port: int
    request: bytes


@dataclass(slots=True)
class _Tally:
    times: list[float] = field(default_factory=list[float])
    errors: int = 0


def _shot(url: str, body: bytes, headers: Mapping[str, str]) -> _Shot:
    place = urlsplit(url)
    if place.scheme != "http" or place.hostname is None:
        raise ValueError(f"{url} cannot be measured: give an address that begins with http://")
    path = (place.path or "/") + (f"?{place.query}" if place.query else "")
    fields = {"Host": place.netloc, "Content-Type": "application/json", **headers}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}"])
    return _Shot(place.hostname, place.port or 80, head.encode() + _END + body)


def _load(tallies: Sequence[_Tally], seconds: float) -> Load:
    times = [each for tally in tallies for each in tally.times]
    p50, p99 = (percentile(times, share) if times else math.nan for share in (0.5, 0.99))
    return Load(len(times), len(times) / seconds, p50, p99, sum(tally.errors for tally in tallies))


@contextmanager
def _process(shot: _Shot, clients: int, seconds: float) -> Generator[Connection]:
    # Not forked: whoever measures may have threads and open connections.
    context = multiprocessing.get_context("spawn")
    # The stubs leave open what other systems return.
    ours, theirs = cast("tuple[Connection, Connection]", Pipe())
    process = context.Process(target=_fire, args=(theirs, shot, clients, seconds), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.kill()
        process.join()
        process.close()


def _hear(pipe: Connection, within_s: float, url: str) -> _Tally:
    try:
        said = pipe.recv() if pipe.poll(within_s) else TimeoutError(f"no word for {within_s:.0f} s")
    except EOFError as error:
        said = error
    if isinstance(said, Exception):
        raise LoadFailed(f"the load on {url} broke off: {said!r}; see whether the server is up") from said
    return said


def _fire(pipe: Connection, shot: _Shot, clients: int, seconds: float) -> None:
    try:
        callers = [_Caller(shot) for _ in range(clients)]
        pipe.send(_Tally())  # all are connected before the first begins
        pipe.recv()
        pipe.send(_call(callers, time.monotonic() + seconds))
    except OSError as error:
        pipe.send(error)


def _call(callers: Sequence["_Caller"], deadline: float) -> _Tally:
    tally = _Tally()
    with selectors.DefaultSelector() as selector:
        for caller in callers:
            selector.register(caller.connection, selectors.EVENT_READ, caller)
            caller.send()
        while (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                try:
                    key.data.receive(tally)
                except ConnectionError:
                    tally.errors += 1
                    selector.unregister(key.fileobj)
                    key.data.connect()
                    selector.register(key.data.connection, selectors.EVENT_READ, key.data)
                    key.data.send()
    return tally


class _Caller:
    """One connection, with one request under way."""

    def __init__(self, shot: _Shot) -> None:
        self._shot = shot
        self.connect()

    def connect(self) -> None:
        self.connection = socket.create_connection((self._shot.host, self._shot.port), SILENCE_S)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self) -> None:
        self._answer, self._sent_at = b"", time.monotonic()
        self.connection.sendall(self._shot.request)

    def receive(self, tally: _Tally) -> None:
        data = self.connection.recv(65536)
        if not data:
            self.connection.close()
            raise ConnectionResetError("the server hung up")
        self._answer += data
        if answer_body(self._answer) is not None:
            if self._answer[_STATUS].startswith(b"2"):
                tally.times.append(time.monotonic() - self._sent_at)
            else:
                tally.errors += 1
            self.send()


def answer_body(answer: bytes) -> bytes | None:
    """The body of an answer that has come whole; None while some of it is missing."""
    head, end, body = answer.partition(_END)
    if not end:
        return None
    _, found, rest = head.lower().partition(_LENGTH)
    if not found:
        raise OSError(f"an answer has no Content-Length, so its end cannot be known: {head!r}")
    return body if len(body) >= int(rest.partition(b"\r\n")[0]) else None
