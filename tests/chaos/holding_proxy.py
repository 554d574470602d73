"""A door between a worker and the API, held shut by a test before a request goes on, or before its answer does."""

from dataclasses import dataclass, field
from enum import Enum
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

PATIENCE_S = 60.0
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class When(Enum):
    ASKED = "the request has not gone on yet"
    ANSWERED = "the server has answered, and the answer has not gone on yet"


@dataclass(kw_only=True)
class Hold:
    """The first exchange on this path that fits stays here until it is let go."""

    path: str
    when: When
    having: bytes = b""
    """What the answer must hold."""
    reached: Event = field(default_factory=Event)
    over: Event = field(default_factory=Event)
    cut: bool = False

    def let_go(self, *, cut: bool) -> None:
        """`cut`: as when one end dies, nothing of it goes on."""
        self.cut = cut
        self.over.set()


class Gate:
    """An HTTP proxy on loopback. What it cannot pass on it drops, as a broken connection would."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._hold: Hold | None = None
        self._under_way: list[str] = []
        gate = self

        class Passing(_Passing):
            owner = gate

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def hold(self, path: str, when: When, having: bytes = b"") -> Hold:
        self._hold = Hold(path=path, when=when, having=having)
        return self._hold

    def under_way(self, path: str) -> bool:
        return path in self._under_way

    def close(self) -> None:
        if self._hold is not None:
            self._hold.let_go(cut=True)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def exchange(self, method: str, path: str, headers: dict[str, str], body: bytes) -> "_Answer | None":
        """None when nothing comes back."""
        if self._stays(path, When.ASKED):
            return None
        self._under_way.append(path)
        try:
            answer = _ask(self._port, method, path, headers, body)
        except (OSError, HTTPException):
            return None
        finally:
            self._under_way.remove(path)
        return None if self._stays(path, When.ANSWERED, answer.body) else answer

    def _stays(self, path: str, when: When, body: bytes = b"") -> bool:
        """Waits where it is told to; whether the exchange was cut here."""
        hold = self._hold
        if hold is None or (hold.path, hold.when) != (path, when) or hold.having not in body:
            return False
        self._hold = None
        hold.reached.set()
        hold.over.wait(PATIENCE_S)
        return hold.cut


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


def _ask(port: int, method: str, path: str, headers: dict[str, str], body: bytes) -> _Answer:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
        return _Answer(answer.status, kept, answer.read())
    finally:
        connection.close()


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Gate

    def do_POST(self) -> None:
        try:
            self._pass()
        except OSError:  # the worker was killed meanwhile
            self.close_connection = True

    def do_GET(self) -> None:
        self.do_POST()

    def do_PUT(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing is printed."""

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        answer = self.owner.exchange(self.command, self.path, headers, body)
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)
