"""A small service that runs jobs by HTTP, for tests: it can be told to fail in every way that services do.

A job says itself what becomes of it: `{"do": "good"}`, `{"do": "bad"}`, or `{"do": "long"}` until it is released.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from socketserver import TCPServer
from types import TracebackType
from typing import Any, Self, cast
from urllib.request import Request, urlopen

HOST = "127.0.0.1"
PICTURE = b"\x89PNG\r\n\x1a\n a small picture"
_LONGEST_S = 30.0
_SETTLE_S = 0.02


class Fault(StrEnum):
    """What happens in place of an answer, or after the deed."""

    HTML = "html"
    UNAUTHORIZED = "unauthorized"
    TOO_MANY = "too_many"
    SERVER_ERROR = "server_error"
    SERVER_ERROR_AFTER = "server_error_after"
    """It does what was asked, and says that it failed."""
    SLOW = "slow"
    """It does what was asked, and does not answer in time."""
    CUT = "cut"
    """It does what was asked, and the connection breaks."""
    HUGE = "huge"
    REDIRECT = "redirect"


_AFTER = {Fault.SERVER_ERROR_AFTER, Fault.SLOW, Fault.CUT}


@dataclass(slots=True)
class ServedJob:
    payload: dict[str, Any]
    state: str = "queued"
    runs: int = 1
    callback: str | None = None

    def document(self) -> dict[str, Any]:
        done = {"queued": 0, "running": 50}.get(self.state, 100)
        found: dict[str, Any] = {"state": self.state, "percent": done, "seconds": 1.5}
        if self.state == "failed":
            found["error"] = {"message": str(self.payload.get("message", "it went wrong"))}
        if self.state == "done":
            found["output"] = {
                "text": self.payload.get("text", "fine"),
                "files": ["/files/a.png", "/files/b.png"],
            }
        return found


@dataclass(slots=True)
class _Planned:
    fault: Fault
    path: str
    times: int


@dataclass(slots=True, kw_only=True)
class Seen:
    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: object = None


Reply = tuple[int, object] | bytes | None
"""A status and JSON, a file, or nothing more at all."""


class FakeHttpService:
    """The service, for as long as the block lasts."""

    def __init__(self) -> None:
        self.jobs: dict[str, ServedJob] = {}
        self.seen: list[Seen] = []
        self._planned: list[_Planned] = []
        self._numbers = count(1)
        self._lock = threading.RLock()
        self._released = threading.Event()
        self._stopping = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_SETTLE_S,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    def add_fault(self, fault: Fault, *, path: str = "/", times: int = 1) -> None:
        """For the next requests whose path begins so."""
        with self._lock:
            self._planned.append(_Planned(fault, path, times))

    def release(self) -> None:
        """All long jobs come to their end."""
        with self._lock:
            waiting = [job for job in self.jobs.values() if job.state == "running"]
            for job in waiting:
                job.state = "done"
            self._released.set()
        for job in waiting:
            self._call_back(job)

    def forget(self, job_id: str) -> None:
        with self._lock:
            del self.jobs[job_id]

    def answer(self, seen: Seen) -> Reply:
        with self._lock:
            self.seen.append(seen)
            fault = self._due(seen.path)
        if fault is None:
            return self._serve(seen)
        if fault in _AFTER:
            self._serve(seen)
        return self._misbehave(fault)

    def _serve(self, seen: Seen) -> Reply:
        match [seen.method, *seen.path.strip("/").split("/")]:
            case ["POST", "jobs" | "numbered" as kind]:
                return self._take(seen, numbered=kind == "numbered")
            case ["POST", "sync"]:
                return self._run_now(seen)
            case ["GET", "jobs", job_id]:
                return self._with(job_id, lambda job: (200, job.document()))
            case ["GET", "jobs", job_id, "result"]:
                return self._with(job_id, lambda job: (200, job.document().get("output")))
            case ["POST", "jobs", job_id, "cancel"]:
                return self._cancel(job_id)
            case ["GET", "files", _]:
                return PICTURE
            case ["GET", ""]:
                return 200, {"service": "fake"}
            case _:
                return 404, {"error": "there is no such thing"}

    def _take(self, seen: Seen, *, numbered: bool) -> Reply:
        body = _mapping(seen.body)
        if "do" not in body:
            return 422, {"error": "a job says what to do"}
        with self._lock:
            job_id = str(next(self._numbers)) if numbered else seen.headers["idempotency-key"]
            if job_id in self.jobs:
                self.jobs[job_id].runs += 1
            else:
                self.jobs[job_id] = ServedJob(body, callback=body.get("callback"))
            job = self.jobs[job_id]
            job.state = {"bad": "failed", "long": "running"}.get(body["do"], "done")
        self._call_back(job)
        return 202, {"id": int(job_id) if numbered else job_id}

    def _run_now(self, seen: Seen) -> Reply:
        """The answer is the result."""
        body = _mapping(seen.body)
        job = self.jobs[seen.headers["idempotency-key"]] = ServedJob(body)
        if body.get("do") == "bad":
            return 422, {"error": "it went wrong"}
        if body.get("do") == "long":
            self._released.wait(_LONGEST_S)
        job.state = "done"
        return 200, job.document()["output"]

    def _cancel(self, job_id: str) -> Reply:
        with self._lock:
            job = self.jobs.get(job_id)
            if job is None:
                return 404, {"error": "no such job"}
            stops = job.state == "running"
            job.state = "cancelled" if stops else job.state
        if stops:
            self._call_back(job)
        return 200, {}

    def _with(self, job_id: str, use: Callable[[ServedJob], Reply]) -> Reply:
        with self._lock:
            job = self.jobs.get(job_id)
            return (404, {"error": "no such job"}) if job is None else use(job)

    def _call_back(self, job: ServedJob) -> None:
        if job.callback is not None:
            body = json.dumps(job.document()).encode()
            request = Request(job.callback, body, {"Content-Type": "application/json"})
            with urlopen(request, timeout=5):
                pass

    def _due(self, path: str) -> Fault | None:
        for planned in self._planned:
            if path.startswith(planned.path) and planned.times > 0:
                planned.times -= 1
                return planned.fault
        return None

    def _misbehave(self, fault: Fault) -> Reply:
        match fault:
            case Fault.HTML:
                return b"<html><body>Please log in</body></html>"
            case Fault.UNAUTHORIZED:
                return 401, {"error": "who are you"}
            case Fault.TOO_MANY:
                return 429, {"error": "later"}
            case Fault.SERVER_ERROR | Fault.SERVER_ERROR_AFTER:
                return 500, {"error": "internal"}
            case Fault.SLOW:
                self._stopping.wait(_LONGEST_S)
                return None
            case Fault.CUT:
                return None
            case Fault.HUGE:
                return 200, {"state": "done", "filler": "x" * (2 * 1024 * 1024)}
            case Fault.REDIRECT:
                return 302, {}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, service: FakeHttpService) -> None:
        self.service = service
        super().__init__((HOST, 0), _Handler)

    def server_bind(self) -> None:
        """Without looking up the name of the host, which may take seconds and serves nothing here."""
        TCPServer.server_bind(self)
        self.server_port = int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may leave at any time."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(method=self.command, path=self.path.partition("?")[0], headers=headers, body=_json(body))
        self._send(self.server.service.answer(seen))

    do_POST = do_GET  # noqa: N815

    def _send(self, reply: Reply) -> None:
        if reply is None:
            return
        if isinstance(reply, bytes):
            status, kind, body = 200, "text/html" if reply.startswith(b"<") else "image/png", reply
        else:
            status, kind, body = reply[0], "application/json", json.dumps(reply[1]).encode()
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "1")
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """What was asked is kept by the service."""


def _json(body: bytes) -> object:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return None


def _mapping(body: object) -> dict[str, Any]:
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def wait_for(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it does not hold after {seconds} seconds"
        time.sleep(_SETTLE_S)
