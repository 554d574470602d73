"""The wire: one thread for each connection, and connections that can be ended at any moment."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from herdsman.testing.comfyui.replies import Answer, NoReply, Reply, Request, Upgrade
from herdsman.testing.comfyui.web_socket import WebSocket

IDLE_S = 60.0
LAST_WORDS_S = 0.5
PIECE = 1024 * 1024
BACKLOG = 256


class HttpServer:
    """Takes connections from `start` to `close`; after that they are refused."""

    def __init__(
        self,
        address: tuple[str, int],
        answer: Callable[[Request], Answer],
        attend: Callable[[WebSocket, str], None],
        most_bytes: int,
    ) -> None:
        self.answer = answer
        self.attend = attend
        self.most_bytes = most_bytes
        self._listener = port_holder(address)
        self._connections: set[socket.socket] = set()
        self._upgraded: set[socket.socket] = set()
        self._closed = False
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._acceptor = threading.Thread(target=self._accept, name="fake-comfyui-door", daemon=True)

    def start(self) -> None:
        self._listener.listen(BACKLOG)
        self._acceptor.start()

    def close(self) -> None:
        """No connection from now on, and those that ask and answer are cut. It waits for nobody."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            self._closed = True
            connections = tuple(self._connections)
        for connection in connections:
            _shut(connection)

    def join(self) -> None:
        """Until all has ended. A WebSocket whose other side does not read has a moment for its last words."""
        self._acceptor.join()
        with self._lock:
            threads, upgraded = tuple(self._threads), tuple(self._upgraded)
        deadline = time.monotonic() + LAST_WORDS_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for connection in upgraded:
            _shut(connection)
        for thread in threads:
            thread.join()

    def leave_to_itself(self, connection: socket.socket) -> None:
        """A WebSocket is ended by its hub, which first lets it say what it was told to."""
        with self._lock:
            self._connections.discard(connection)
            self._upgraded.add(connection)

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection, address), daemon=True)
            with self._lock:
                self._connections.add(connection)
                self._threads.add(thread)
                if self._closed:
                    _shut(connection)
            thread.start()

    def _serve(self, connection: socket.socket, address: object) -> None:
        try:
            with connection:
                Handler(connection, address, self)  # pyright: ignore[reportArgumentType]
        except (OSError, ValueError):
            pass  # a client may leave at any time, or send what is no HTTP
        finally:
            with self._lock:
                self._connections.discard(connection)
                self._upgraded.discard(connection)
                self._threads.discard(threading.current_thread())


class Handler(BaseHTTPRequestHandler):
    server: HttpServer  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version = "fake-comfyui"
    timeout = IDLE_S
    wbufsize = 65536  # so that head and body of an answer go out together
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        answer = self.server.answer(self._request(self._body()))
        match answer:
            case Reply():
                self._send(answer)
            case NoReply():
                self.close_connection = True
                _shut(self.connection)
            case Upgrade(client_id):
                self._upgrade(client_id)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """The ledger keeps the requests."""

    def _request(self, body: bytes | None) -> Request:
        address = urlsplit(self.path)
        return Request(
            method=self.command,
            path=address.path,
            query=dict(parse_qsl(address.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
        )

    def _body(self) -> bytes | None:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            return self._chunks()
        length = int(self.headers.get("Content-Length") or 0)
        if length <= self.server.most_bytes:
            return self.rfile.read(length)
        # Read to its end, for the answer would not arrive while the other side still sends.
        while length > 0 and (piece := self.rfile.read(min(length, PIECE))):
            length -= len(piece)
        return None

    def _chunks(self) -> bytes | None:
        body, length = bytearray(), 0
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            piece = self.rfile.read(size)
            self.rfile.readline()
            length += size
            body += piece if length <= self.server.most_bytes else b""
        self.rfile.readline()
        return bytes(body) if length <= self.server.most_bytes else None

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(reply.length if reply.pieces else len(reply.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        for piece in reply.pieces or (reply.body,):
            self.wfile.write(piece)

    def _upgrade(self, client_id: str) -> None:
        self.close_connection = True
        self.connection.settimeout(None)
        self.server.leave_to_itself(self.connection)
        web_socket = WebSocket(self.connection, self.path, self.headers.items())
        if web_socket.open:
            self.server.attend(web_socket, client_id)


def check_free(address: tuple[str, int]) -> None:
    """`OSError` if somebody listens there; a holder alone would not notice another fake."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def port_holder(address: tuple[str, int]) -> socket.socket:
    """Bound, but not listening: who connects is refused, and nobody else gets the port meanwhile."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    holder = socket.socket(family, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        holder.bind(address)
    except OSError:
        holder.close()
        raise
    return holder


def _shut(connection: Any) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
