"""Probes over HTTP: whether the process is alive, whether it is ready, and its metrics."""

import json
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

logger = logging.getLogger(__name__)

LONGEST_REQUEST = 8192
READ_DEADLINE = 5.0
MOST_CONNECTIONS = 64


Answer = tuple[HTTPStatus, str, str]
"""Its status, its body, and the content type of that."""
JSON, PROMETHEUS = "application/json", "text/plain; version=0.0.4; charset=utf-8"


class HttpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self, host: str, port: int, respond: Callable[[str], Answer]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.respond = respond
        self._lock = threading.Lock()
        self._unheard: dict[socket.socket, None] = {}
        super().__init__((host, port), _Connection)

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        with self._lock:
            self._unheard[connection] = None
            surplus = list(self._unheard)[:-MOST_CONNECTIONS]
        self.cut(surplus)
        return connection, address

    def heard(self, connection: socket.socket) -> None:
        """Its request is complete, or it has gone: it no longer keeps anyone waiting."""
        with self._lock:
            self._unheard.pop(connection, None)

    def cut(self, connections: Sequence[socket.socket] | None = None) -> None:
        """All that are unheard, unless some are named."""
        with self._lock:
            cut = list(self._unheard) if connections is None else connections
        for each in cut:
            self.heard(each)
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # its thread wakes up, reads the end and closes it

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  socketserver's
        logger.debug("a health request failed", exc_info=True)


class _Connection(socketserver.BaseRequestHandler):
    request: socket.socket

    def handle(self) -> None:
        assert isinstance(self.server, HttpServer)
        head = _read_head(self.request)
        self.server.heard(self.request)
        if head is None:
            return
        words = head.split(b"\n", 1)[0].decode("latin-1").split()
        if len(head) > LONGEST_REQUEST:
            answer = _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif len(words) != 3 or not words[2].startswith("HTTP/"):
            answer = _refusal(HTTPStatus.BAD_REQUEST)
        elif words[0] not in ("GET", "HEAD"):
            answer = _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        else:
            answer = self.server.respond(words[1].partition("?")[0])
        status, text, kind = answer
        body = text.encode()
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        self.request.settimeout(READ_DEADLINE)
        self.request.sendall(lines.encode() + (b"" if words[:1] == ["HEAD"] else body))

    def finish(self) -> None:
        assert isinstance(self.server, HttpServer)
        self.server.heard(self.request)


def _read_head(connection: socket.socket) -> bytes | None:
    """The request up to its empty line; None when it does not come in time."""
    deadline, head = time.monotonic() + READ_DEADLINE, b""
    while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) <= LONGEST_REQUEST:
        try:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            part = connection.recv(LONGEST_REQUEST)
        except OSError:
            return None
        if not part or time.monotonic() > deadline:
            return None
        head += part
    return head


def _refusal(status: HTTPStatus) -> Answer:
    return status, json.dumps({"error": status.phrase.lower()}), JSON


@dataclass(slots=True, eq=False)
class _Question:
    """One call of the readiness check; whoever asks while it is under way shares its answer."""

    deadline: float
    answered: threading.Event = field(default_factory=threading.Event)
    ready: bool = False
    details: Mapping[str, object] = field(default_factory=dict[str, object])


class HealthServer:
    """Probes for whoever watches the process from outside; runs in daemon threads until `stop`."""

    def __init__(
        self,
        *,
        host: str = "0.0.0.0",  # noqa: S104  a probe comes from outside of the container
        port: int = 8080,
        readiness_check: Callable[[], bool] | None = None,
        liveness_check: Callable[[], bool] | None = None,
        details: Callable[[], Mapping[str, object]] | None = None,
        metrics: Callable[[], str] | None = None,
        readiness_timeout: float = 1.0,
    ) -> None:
        self._host, self._port = host, port
        self._alive = liveness_check or (lambda: True)
        self._metrics = metrics or (lambda: "")
        self._ready, self._details = readiness_check or (lambda: True), details or dict[str, object]
        self._timeout = readiness_timeout
        self._asked: _Question | None = None
        self._lock = threading.Lock()
        self._server: HttpServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it listens; None while it does not."""
        server = self._server
        return None if server is None else (str(server.server_address[0]), int(server.server_address[1]))

    def start(self) -> None:
        with self._lock:
            if self._server is not None:
                return
            self._server = server = HttpServer(self._host, self._port, self._respond)
            self._thread = threading.Thread(
                target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="health", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        with self._lock:
            server, self._server = self._server, None
            thread, self._thread = self._thread, None
        if server is not None and thread is not None:
            server.shutdown()
            server.server_close()
            server.cut()
            thread.join()

    def _respond(self, path: str) -> Answer:
        try:
            match path:
                case "/health/live":
                    return _health({}, ok=bool(self._alive()))
                case "/health/ready":
                    found = self._ask()
                    return _health(found.details, ok=found.ready)
                case "/metrics":
                    return HTTPStatus.OK, ready_metric(ready=self._ask().ready) + self._metrics(), PROMETHEUS
                case _:
                    return HTTPStatus.NOT_FOUND, json.dumps({"error": "not found", "path": path}), JSON
        except Exception as error:
            logger.exception("the answer to %s failed", path)
            if path == "/health/live":
                return _health({}, ok=False)
            return HTTPStatus.INTERNAL_SERVER_ERROR, json.dumps({"error": repr(error)}), JSON

    def _ask(self) -> _Question:
        """The answer, or a no when it takes too long; a check that hangs is never begun a second time."""
        with self._lock:
            question = self._asked
            if question is None:
                question = self._asked = _Question(time.monotonic() + self._timeout)
                threading.Thread(target=self._answer, args=(question,), name="readiness", daemon=True).start()
        if question.answered.wait(max(0.0, question.deadline - time.monotonic())):
            return question
        said = f"the readiness check takes over {self._timeout:g} s"
        return _Question(question.deadline, details={"error": said})

    def _answer(self, question: _Question) -> None:
        try:
            question.ready, question.details = bool(self._ready()), dict(self._details())
        except Exception as error:  # an answer that never comes would look like a dead process
            logger.exception("the readiness check failed")
            question.ready, question.details = False, {"error": f"the readiness check failed: {error!r}"}
        with self._lock:
            self._asked = None
        question.answered.set()


def _health(details: Mapping[str, object], *, ok: bool) -> Answer:
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    word = {"status": "healthy" if ok else "unhealthy"}
    return status, json.dumps(word | dict(details) | word, default=str), JSON


def ready_metric(*, ready: bool) -> str:
    return _family("wink_health_ready", "gauge", "1 when every loop runs and beats", {None: float(ready)})


def age_metric(ages: Mapping[str, float]) -> str:
    return _family("wink_heartbeat_age_seconds", "gauge", "Seconds since the loop last beat", ages)


def stalls_metric(stalls: Mapping[str, int]) -> str:
    return _family("wink_watchdog_stalls_total", "counter", "How often the loop stood still", stalls)


def _family(name: str, kind: str, meaning: str, by_loop: Mapping[str, float] | Mapping[None, float]) -> str:
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for loop, value in by_loop.items():
        label = ""
        if loop is not None:
            escaped = loop.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            label = f'{{loop="{escaped}"}}'
        lines.append(f"{name}{label} {value:g}")
    return "\n".join(lines) + "\n"
