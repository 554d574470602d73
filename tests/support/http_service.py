"""A small service that runs jobs over HTTP, for tests: it can be told to fail in every way that services do.

A job says itself what becomes of it: `{"do": "good"}`, `{"do": "bad"}`, or `{"do": "long"}` until it is released.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Any, Self, cast

import httpx
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from herdsman.testing.fakes.app_server import ANY_METHOD, AppServer, sleep_unless

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
            found["output"] = {"text": self.payload.get("text", "fine"), "files": ["/files/a.png", "/files/b.png"]}
        return found


@dataclass(slots=True)
class _Planned:
    fault: Fault
    path: str
    times: int


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    """Empty where it is no JSON object."""


Handler = Callable[[RequestRecord, Request], Response]


class FakeHttpService:
    """The service, for as long as the block lasts."""

    def __init__(self) -> None:
        self.jobs: dict[str, ServedJob] = {}
        self.requests: list[RequestRecord] = []
        self._planned: list[_Planned] = []
        self._numbers = count(1)
        self._lock = threading.RLock()
        self._released = threading.Event()
        self._stopping = threading.Event()
        of_job, result = "/jobs/{job_id}", self._with_job(lambda job: job.document().get("output"))
        routes = [
            self._route("POST", "/jobs", self._submit),
            self._route("POST", "/numbered", self._submit),
            self._route("POST", "/sync", self._run_now),
            self._route("GET", of_job, self._with_job(ServedJob.document)),
            self._route("GET", f"{of_job}/result", result),
            self._route("POST", f"{of_job}/cancel", self._with_job(self._cancel)),
            self._route("GET", "/files/{name}", lambda _, __: Response(PICTURE, media_type="image/png")),
            self._route("GET", "/", lambda _, __: JSONResponse({"service": "fake"})),
            self._route(None, "/{anything:path}", lambda _, __: _error(404, "there is no such thing")),
        ]
        self._server = AppServer(Starlette(routes=routes), name="fake-http-service")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._released.set()
        self._server.stop()

    @property
    def url(self) -> str:
        return self._server.url

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
            _call_back(job)

    def forget(self, job_id: str) -> None:
        with self._lock:
            del self.jobs[job_id]

    def _route(self, method: str | None, path: str, handle: Handler) -> Route:
        """Every request is recorded, and a fault may take the place of its answer."""

        async def endpoint(request: Request) -> Response:
            body: Any = None
            with suppress(ValueError):
                body = json.loads(await request.body())
            record = RequestRecord(
                method=request.method,
                path=request.url.path,
                headers=dict(request.headers),
                body=cast("dict[str, Any]", body) if isinstance(body, dict) else {},
            )
            with self._lock:
                self.requests.append(record)
                due = (each for each in self._planned if record.path.startswith(each.path) and each.times > 0)
                planned = next(due, None)
                if planned is not None:
                    planned.times -= 1
            fault = None if planned is None else planned.fault
            if fault is None or fault in _AFTER:
                answer = await run_in_threadpool(handle, record, request)
                if fault is None:
                    return answer
            if fault in _INSTEAD:
                return _INSTEAD[fault]()
            await sleep_unless(self._stopping, _LONGEST_S if fault is Fault.SLOW else 0)
            self._server.cut(request)
            return Response()

        return Route(path, endpoint, methods=ANY_METHOD if method is None else [method])

    def _submit(self, asked: RequestRecord, _: Request) -> Response:
        if "do" not in asked.body:
            return _error(422, "a job says what to do")
        numbered = asked.path == "/numbered"
        with self._lock:
            job_id = str(next(self._numbers)) if numbered else asked.headers["idempotency-key"]
            if job_id in self.jobs:
                self.jobs[job_id].runs += 1
            else:
                self.jobs[job_id] = ServedJob(asked.body, callback=asked.body.get("callback"))
            job = self.jobs[job_id]
            job.state = {"bad": "failed", "long": "running"}.get(asked.body["do"], "done")
        _call_back(job)
        return JSONResponse({"id": int(job_id) if numbered else job_id}, status_code=202)

    def _run_now(self, asked: RequestRecord, _: Request) -> Response:
        """The answer is the result."""
        job = self.jobs[asked.headers["idempotency-key"]] = ServedJob(asked.body)
        if asked.body.get("do") == "bad":
            return _error(422, "it went wrong")
        if asked.body.get("do") == "long":
            self._released.wait(_LONGEST_S)
        job.state = "done"
        return JSONResponse(job.document()["output"])

    def _with_job(self, use: Callable[[ServedJob], object]) -> Handler:
        def handle(_: RequestRecord, request: Request) -> Response:
            job = self.jobs.get(request.path_params["job_id"])
            return _error(404, "no such job") if job is None else JSONResponse(use(job))

        return handle

    def _cancel(self, job: ServedJob) -> dict[str, Any]:
        with self._lock:
            stops = job.state == "running"
            job.state = "cancelled" if stops else job.state
        if stops:
            _call_back(job)
        return {}


def _call_back(job: ServedJob) -> None:
    if job.callback is not None:
        httpx.post(job.callback, json=job.document(), timeout=5).raise_for_status()


def _error(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": reason}, status_code=status, headers=headers)


_INSTEAD: Mapping[Fault, Callable[[], Response]] = {
    Fault.HTML: lambda: HTMLResponse("<html><body>Please log in</body></html>"),
    Fault.UNAUTHORIZED: lambda: _error(401, "who are you"),
    Fault.TOO_MANY: lambda: _error(429, "later", {"Retry-After": "1"}),
    Fault.SERVER_ERROR: lambda: _error(500, "internal"),
    Fault.SERVER_ERROR_AFTER: lambda: _error(500, "internal"),
    Fault.HUGE: lambda: JSONResponse({"state": "done", "filler": "x" * (2 * 1024 * 1024)}),
    Fault.REDIRECT: lambda: JSONResponse({}, status_code=302, headers={"Location": "/elsewhere"}),
}


def wait_for(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it does not hold after {seconds} seconds"
        time.sleep(_SETTLE_S)
