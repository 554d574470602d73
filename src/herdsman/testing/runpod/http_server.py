"""The wire: reads requests within limits, asks the door, and writes what it says, or breaks off."""

import json
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from herdsman.testing.runpod.replies import Reply, problem
from herdsman.testing.runpod.routes import Request

MOST_CONNECTIONS = 64
LARGEST_BODY = 1024 * 1024
SILENCE_S = 5.0


class FakeHttpServer(ThreadingHTTPServer):
    """One thread for each connection, and one request on each; more than a few dozen wait for their turn."""

    daemon_threads = False
    request_queue_size = 256

    def __init__(
        self, address: tuple[str, int], answer: Callable[[Request], Reply], stopping: threading.Event
    ) -> None:
        self.answer = answer
        self.stopping = stopping
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        """Without looking up the name of the host, which may take seconds and serves nothing here."""
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._places.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may leave at any time; anything else is a mistake of ours, and is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: FakeHttpServer  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version = "fake-runpod"
    timeout = SILENCE_S

    def do_GET(self) -> None:
        self._respond()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """The ledger keeps the requests."""

    def _respond(self) -> None:
        self.close_connection = True
        read = self._read_body()
        reply = read if isinstance(read, Reply) else self.server.answer(self._request(read))
        if reply.delay_s and self.server.stopping.wait(reply.delay_s):
            return
        if reply.events is not None:
            self._send_events(reply)
        elif reply.cut_after == 0:
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._send(reply)

    def _read_body(self) -> bytes | Reply:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return problem(413, "the body is too large")
        return self.rfile.read(int(length))

    def _request(self, body: bytes) -> Request:
        address = urlsplit(self.path)
        scheme, _, key = self.headers.get("Authorization", "").partition(" ")
        return Request(
            method=self.command,
            path=address.path,
            query=dict(parse_qsl(address.query)),
            key=key if scheme == "Bearer" and key else None,
            body=_json(body),
        )

    def _send(self, reply: Reply) -> None:
        self._send_head(reply)
        if reply.status != 204:
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body[: reply.cut_after])

    def _send_events(self, reply: Reply) -> None:
        self._send_head(reply)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        for event in reply.events or ():
            self.wfile.write(event.encode())

    def _send_head(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")


def _json(body: bytes) -> object:
    try:
        return json.loads(body) if body else None
    except (ValueError, RecursionError):
        return None
