"""Requests written byte by byte, and answers read as they come: for what no client library would send."""

import re
import select
import socket
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from fastapi import FastAPI

from herdsman.server.http_server import ApiServer, Listening, bind
from herdsman.server.state import ServerState
from herdsman.wire import MEDIA_TYPE, Problem

PATIENCE = 60.0
MEBI = 1_048_576
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")


@dataclass(frozen=True, slots=True)
class Place:
    host: str
    port: int
    url: str

    @contextmanager
    def line(self) -> Generator[socket.socket]:
        with closing(socket.create_connection((self.host, self.port), timeout=PATIENCE)) as opened:
            yield opened

    def told(self, *sent: bytes) -> bytes:
        """All that is answered to this, until the other side closes."""
        with self.line() as line:
            return poured(line, sent)

    def alive(self) -> bool:
        return httpx.get(f"{self.url}/health/live", timeout=PATIENCE).status_code == 200


@contextmanager
def serving(app: FastAPI, state: ServerState, listening: Listening) -> Generator[Place]:
    server = ApiServer(app, bind(listening), on_stop=state.stop_waiting)
    server.start()
    try:
        url = httpx.URL(server.url)
        assert url.port is not None
        yield Place(url.host, url.port, server.url)
    finally:
        server.stop()


def request(target: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    head = (f"{method} {target} HTTP/{version}", "host: 127.0.0.1", *headers)
    return ("\r\n".join(head) + "\r\n\r\n").encode("latin-1")


def poured(line: socket.socket, parts: Iterable[bytes]) -> bytes:
    """Sends until it is answered, as a client does that looks up from its writing; then reads to the end."""
    for part in parts:
        left = memoryview(part)
        while left:
            readable, writable, _ = select.select([line], [line], [], PATIENCE)
            if readable or not writable:
                return ended(line)
            try:
                left = left[line.send(left[:65_536]) :]
            except OSError:
                return ended(line)
    return ended(line)


def ended(line: socket.socket) -> bytes:
    parts = [b""]
    try:
        while part := line.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        return b"".join(parts)
    return b"".join(parts)


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in _STATUS.findall(answer)]


def problem_in(answer: bytes) -> Problem:
    """Of an answer that is ours."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"content-type: {MEDIA_TYPE}".encode() in head.lower(), answer[:500]
    return Problem.model_validate_json(body)


def resident() -> int:
    """How much memory this process has, in bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


def zeros(mebibytes: int) -> Iterator[bytes]:
    chunk = b" " * MEBI
    for _ in range(mebibytes):
        yield chunk


def chunked(parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        yield b"%x\r\n%s\r\n" % (len(part), part)
    yield b"0\r\n\r\n"
