"""A door for one job, at which the service may tell how it stands. Its path cannot be guessed."""

import json
import queue
import secrets
import threading
from collections.abc import Callable
from datetime import timedelta
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, cast

from herdsman.connectors.http.options import Callback
from herdsman.core.errors import ServiceUnavailable

LARGEST_BODY = 16 * 1024 * 1024
MOST_NEWS = 1000
_SILENCE_S = 5.0
_SETTLE_S = 0.05


class CallbackDoor:
    """Listens from its making until `close`. Others than the service find nothing here."""

    def __init__(self, options: Callback) -> None:
        self._path = f"/{secrets.token_urlsafe(32)}"
        self._news: queue.Queue[object] = queue.Queue(MOST_NEWS)
        try:
            self._server = _Server((options.host, options.port), self._take)
        except OSError as error:
            raise ServiceUnavailable(
                f"callback: {options.host}:{options.port} cannot be listened on: {error}"
            ) from error
        where = options.public_url or f"http://{options.host}:{self._server.server_port}"
        self.url = f"{where.rstrip('/')}{self._path}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_SETTLE_S,), name="callback", daemon=True
        )
        self._thread.start()

    def wait(self, silence: timedelta) -> object | None:
        """The next that was posted; None when nothing came."""
        try:
            return self._news.get(timeout=max(0.001, silence.total_seconds()))
        except queue.Empty:
            return None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, path: str, body: bytes) -> int:
        """The status to answer with."""
        if not compare_digest(path.partition("?")[0].encode(), self._path.encode()):
            return 404
        try:
            document: object = json.loads(body)
        except (ValueError, RecursionError):
            return 400
        if not isinstance(document, dict | list):
            return 400
        try:
            self._news.put_nowait(cast("object", document))
        except queue.Full:
            return 503
        return 204


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], take: Callable[[str, bytes], int]) -> None:
        self.take = take
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Without looking up the name of the host, which may take seconds and serves nothing here."""
        TCPServer.server_bind(self)
        self.server_port = int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who knocks and leaves is nobody's trouble."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = _SILENCE_S

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            status = 413
        else:
            status = self.server.take(self.path, self.rfile.read(int(length)))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """The path is a secret."""
