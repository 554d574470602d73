"""A server in this process that answers from a list, and a clock that nobody waits for."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from herdsman.client import AsyncClient, Client
from herdsman.wire import MEDIA_TYPE, problem
from tests.support.job_fields import job_fields

URL = "http://127.0.0.1:1"
Answering = Callable[[httpx.Request], httpx.Response]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class QuickClock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, duration: timedelta) -> None:
        self.slept.append(duration.total_seconds())
        self.now += duration.total_seconds()


class Served:
    """Answers in turn; the last answer is given for ever. An exception stands for a broken connection."""

    def __init__(self, *answers: httpx.Response | Exception | Answering) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.clock = QuickClock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else answer(request)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests if request.content]

    @property
    def paths(self) -> list[str]:
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.requests]

    def client(self, token: str | None = "secret-token", **options: Any) -> Client:
        return Client(URL, token, clock=self.clock, transport=httpx.MockTransport(self), **options)

    def async_client(self, **options: Any) -> AsyncClient:
        transport = httpx.MockTransport(self)
        return AsyncClient(URL, "secret-token", clock=self.clock, transport=transport, **options)


def said(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> httpx.Response:
    return httpx.Response(status, json=body, headers=headers)


def refused(status: int, code: str, detail: str = "no", headers: Mapping[str, str] | None = None) -> httpx.Response:
    kind = {"Content-Type": MEDIA_TYPE, **(headers or {})}
    return httpx.Response(status, content=problem(status, code, detail).model_dump_json(), headers=kind)


def page(status: int = 200) -> httpx.Response:
    return httpx.Response(status, html="<title>Welcome</title>")


def submitted(job_id: str = "job-1") -> httpx.Response:
    return said({"job_id": job_id, "created": True}, 201)


def a_job(status: str = "pending", **values: object) -> dict[str, object]:
    return job_fields(status, NOW.isoformat(), **values)


def an_event(number: int) -> dict[str, object]:
    return {
        "id": number,
        "ts": NOW.isoformat(),
        "event": "job.pending",
        "kind": "job",
        "object_id": "job-1",
        "seq": number,
        "from_status": None,
        "to_status": "pending",
        "reason": "submitted",
        "actor": "admin",
    }


def stream(*events: int, rest: str = "") -> httpx.Response:
    text = "".join(an_event_text(each) for each in events) + rest
    return httpx.Response(200, content=text, headers={"Content-Type": "text/event-stream"})


SOON_ORDERS: dict[str, object] = {"expires_at": NOW.isoformat(), "drain": False}


def an_event_text(number: int) -> str:
    return f"id: {number}\ndata: {json.dumps(an_event(number))}\n\n"
