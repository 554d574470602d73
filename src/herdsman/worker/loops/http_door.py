"""A very small HTTP server: it reads one short request, answers and hangs up, and never waits for a slow client.

Each connection has one thread and one deadline. When there are too many, the oldest that has not finished its
request is cut off, so that a new one is always heard.
"""

import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

logger = logging.getLogger(__name__)

LONGEST_REQUEST = 8192
READ_DEADLINE = 5.0
MOST_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Answer:
    status: HTTPStatus
    body: bytes
    kind: str = "application/json"


Respond = Callable[[str, str], Answer]
"""What to answer to this method and path."""


class Door(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self, host: str, port: int, respond: Respond) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.respond = respond
        self._lock = threading.Lock()
        self._unheard: dict[socket.socket, None] = {}
        super().__init__((host, port), _Visitor)

    def get_request(self) -> tuple[socket.socket, object]:
        visitor, address = super().get_request()
        with self._lock:
            self._unheard[visitor] = None
            crowd = list(self._unheard)[:-MOST_CONNECTIONS]
        for each in crowd:
            self._cut(each)
        return visitor, address

    def heard(self, visitor: socket.socket) -> None:
        """Its request is complete, or it has gone: it no longer keeps anyone waiting."""
        with self._lock:
            self._unheard.pop(visitor, None)

    def cut_all(self) -> None:
        with self._lock:
            unheard = list(self._unheard)
        for each in unheard:
            self._cut(each)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  socketserver's
        logger.debug("a health request failed", exc_info=True)

    def _cut(self, visitor: socket.socket) -> None:
        self.heard(visitor)
        try:
            visitor.shutdown(socket.SHUT_RDWR)  # its thread wakes up, reads the end and closes it
        except OSError:
            return


class _Visitor(socketserver.BaseRequestHandler):
    request: socket.socket

    def setup(self) -> None:
        assert isinstance(self.server, Door)
        self._door = self.server

    def handle(self) -> None:
        head = _read_head(self.request)
        self._door.heard(self.request)
        if head is not None:
            self.request.settimeout(READ_DEADLINE)
            self.request.sendall(self._answer(head))

    def finish(self) -> None:
        self._door.heard(self.request)

    def _answer(self, head: bytes) -> bytes:
        if len(head) > LONGEST_REQUEST:
            return _framed(_refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        words = head.split(b"\n", 1)[0].decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return _framed(_refusal(HTTPStatus.BAD_REQUEST))
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _framed(_refusal(HTTPStatus.METHOD_NOT_ALLOWED))
        return _framed(self._door.respond(method, target.partition("?")[0]), with_body=method == "GET")


def _read_head(visitor: socket.socket) -> bytes | None:
    """The request up to its empty line; None when it does not come in time."""
    deadline, head = time.monotonic() + READ_DEADLINE, b""
    while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) <= LONGEST_REQUEST:
        try:
            visitor.settimeout(max(0.001, deadline - time.monotonic()))
            part = visitor.recv(LONGEST_REQUEST)
        except OSError:
            return None
        if not part or time.monotonic() > deadline:
            return None
        head += part
    return head


def _refusal(status: HTTPStatus) -> Answer:
    return Answer(status, b'{"error": "%s"}' % status.phrase.lower().encode())


def _framed(answer: Answer, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.kind}\r\n"
        f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")
