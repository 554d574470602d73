"""Probes over HTTP: whether the process is alive, whether it is ready, and its metrics."""

import json
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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


Respond = Callable[[str], Answer]
"""What to answer to a GET of this path."""


class HttpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self, host: str, port: int, respond: Respond) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.respond = respond
        self._lock = threading.Lock()
        self._unheard: dict[socket.socket, None] = {}
        super().__init__((host, port), _Connection)

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        with self._lock:
            self._unheard[connection] = None
            crowd = list(self._unheard)[:-MOST_CONNECTIONS]
        for each in crowd:
            self._cut(each)
        return connection, address

    def heard(self, connection: socket.socket) -> None:
        """Its request is complete, or it has gone: it no longer keeps anyone waiting."""
        with self._lock:
            self._unheard.pop(connection, None)

    def cut_all(self) -> None:
        with self._lock:
            unheard = list(self._unheard)
        for each in unheard:
            self._cut(each)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  socketserver's
        logger.debug("a health request failed", exc_info=True)

    def _cut(self, connection: socket.socket) -> None:
        self.heard(connection)
        try:
            connection.shutdown(socket.SHUT_RDWR)  # its thread wakes up, reads the end and closes it
        except OSError:
            return


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
        lines = (
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.kind}\r\n"
            f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        self.request.settimeout(READ_DEADLINE)
        self.request.sendall(lines.encode() + (b"" if words[:1] == ["HEAD"] else answer.body))

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
    return Answer(status, b'{"error": "%s"}' % status.phrase.lower().encode())


@dataclass(frozen=True, slots=True)
class Verdict:
    ready: bool
    details: Mapping[str, object] = field(default_factory=dict[str, object])


class _Question:
    """One call of the check; whoever asks while it is under way shares its answer."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.answered = threading.Event()
        self.verdict = Verdict(ready=False)


class Readiness:
    def __init__(
        self,
        check: Callable[[], bool],
        details: Callable[[], Mapping[str, object]] = dict[str, object],
        *,
        timeout: float = 1.0,
    ) -> None:
        self._check = check
        self._details = details
        self._timeout = timeout
        self._lock = threading.Lock()
        self._asked: _Question | None = None

    def ask(self) -> Verdict:
        """The answer, or a no when it takes too long; a check that hangs is never begun a second time."""
        with self._lock:
            question = self._asked
            if question is None:
                question = self._asked = _Question(time.monotonic() + self._timeout)
                threading.Thread(target=self._answer, args=(question,), name="readiness", daemon=True).start()
        if question.answered.wait(max(0.0, question.deadline - time.monotonic())):
            return question.verdict
        return Verdict(ready=False, details={"error": f"the readiness check takes over {self._timeout:g} s"})

    def _answer(self, question: _Question) -> None:
        try:
            question.verdict = Verdict(ready=bool(self._check()), details=dict(self._details()))
        except Exception as error:  # an answer that never comes would look like a dead process
            logger.exception("the readiness check failed")
            said = f"the readiness check failed: {error!r}"
            question.verdict = Verdict(ready=False, details={"error": said})
        with self._lock:
            self._asked = None
        question.answered.set()


PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


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
        self._readiness = Readiness(
            readiness_check or (lambda: True), details or dict[str, object], timeout=readiness_timeout
        )
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
            server.cut_all()
            thread.join()

    def _respond(self, path: str) -> Answer:
        match path:
            case "/health/live":
                try:
                    alive = bool(self._alive())
                except Exception:
                    logger.exception("the liveness check failed")
                    alive = False
                return _health({}, ok=alive)
            case "/health/ready":
                verdict = self._readiness.ask()
                return _health(verdict.details, ok=verdict.ready)
            case "/metrics":
                try:
                    text = ready_metric(ready=self._readiness.ask().ready) + self._metrics()
                except Exception as error:
                    logger.exception("the metrics could not be collected")
                    return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, _json({"error": repr(error)}))
                return Answer(HTTPStatus.OK, text.encode(), PROMETHEUS)
            case _:
                return Answer(HTTPStatus.NOT_FOUND, _json({"error": "not found", "path": path}))


def _health(details: Mapping[str, object], *, ok: bool) -> Answer:
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    word = "healthy" if ok else "unhealthy"
    return Answer(status, _json({"status": word, **details} | {"status": word}))


def _json(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, default=str).encode()


def ready_metric(*, ready: bool) -> str:
    return _family("wink_health_ready", "gauge", "1 when every loop runs and beats", [("", float(ready))])


def age_metric(ages: Mapping[str, float]) -> str:
    rows = [(_label(name), age) for name, age in ages.items()]
    return _family("wink_heartbeat_age_seconds", "gauge", "Seconds since the loop last beat", rows)


def stalls_metric(stalls: Mapping[str, int]) -> str:
    rows = [(_label(name), float(count)) for name, count in stalls.items()]
    return _family("wink_watchdog_stalls_total", "counter", "How often the loop stood still", rows)


def _family(name: str, kind: str, meaning: str, rows: Iterable[tuple[str, float]]) -> str:
    samples = "".join(f"{name}{labels} {value:g}\n" for labels, value in rows)
    return f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n{samples}"


def _label(loop: str) -> str:
    escaped = loop.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{loop="{escaped}"}}'
