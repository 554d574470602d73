"""A Runpod of one's own: it speaks the REST API v2 on a loopback port, and keeps the ground truth.

Every call needs a key, may meet a fault, and is recorded in the ledger before it is answered.
"""

import ipaddress
import itertools
import json
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from http import HTTPStatus
from typing import Self, cast

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from herdsman.ports import Clock, SystemClock
from herdsman.testing.clocks import Timeline
from herdsman.testing.fakes.app_server import ANY_METHOD, HOST, AppServer, sleep_unless
from herdsman.testing.fakes.runpod.cloud import Cloud
from herdsman.testing.fakes.runpod.faults import Fault, Faults
from herdsman.testing.fakes.runpod.ledger import Ledger, RequestRecord, redacted
from herdsman.testing.fakes.runpod.pods import MAX_LOG_LINES, FakePod, LogEntry, Pace, pod_view
from herdsman.testing.fakes.runpod.wire import GPUS, VOLUMES, NetworkVolume, Refused, amounts, gpu_view, volume_view

KEY = "fake-runpod-key-for-trying"
SETTLING_S = 0.02
BASE = "/v2"
JSON = "application/json"
MAX_BODY_BYTES = 1024 * 1024
MAX_PAGE = 1000
MAX_VOLUME_GB = 4096
BUCKETS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
POLICY = {"RateLimit-Policy": '"minute";q=60;w=60, "hour";q=3000;w=3600'}
QUOTA_LEFT = {"RateLimit": '"minute";r=59;t=60, "hour";r=2999;t=3600', **POLICY}

LOG_SOURCES = frozenset({"container", "system"})
LOG_POLL_S = 0.05
# That a reader has left is noticed only by writing to it.
KEEPALIVE_EVERY = 20
MAX_LOG_POLLS = 12_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    query: Mapping[str, str]
    path: Mapping[str, str]
    body: object = None
    """JSON; None where there is none, or none that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    response: Response
    fault: Fault | None = None
    """Which fault made it what it is."""
    cut_after: int | None = None
    """The connection ends after so many bytes of the body; 0 is before the first byte of the head."""


class FakeRunpod:
    """A fake Runpod, for as long as the block lasts. The same seed gives the same ids, places and faults.

    A pod with a command runs it as a process on this machine, unless `run_commands` is False. Times are those
    of `clock`, `speed` times as fast: with a `ManualClock` nothing moves before the test says so.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        key: str = KEY,
        pace: Pace | None = None,
        clock: Clock | None = None,
        speed: float = 1.0,
        run_commands: bool = True,
        page_size: int = MAX_PAGE,
        volumes: tuple[NetworkVolume, ...] = VOLUMES,
        host: str = HOST,
        port: int = 0,
    ) -> None:
        # Who can reach a fake that runs commands can run anything here.
        if run_commands and host != "localhost" and not ipaddress.ip_address(host).is_loopback:
            raise ValueError(f"{host} is open to others: a fake that runs commands listens on loopback only")
        self.key = key
        self.faults = Faults(seed)
        self._cloud = Cloud(
            seed=seed,
            faults=self.faults,
            timeline=Timeline(clock or SystemClock(), speed),
            pace=pace or Pace(),
            run_commands=run_commands,
            page_size=page_size,
            volumes={each.id: each for each in volumes},
        )
        self.ledger = Ledger(self._cloud)
        self._stopping = threading.Event()
        self._numbers = itertools.count(1)
        app = Starlette(
            routes=[
                Mount(
                    BASE,
                    routes=[
                        self._route("list", "GET", "/pods", self._list),
                        self._route("create", "POST", "/pods", self._create),
                        self._route("get", "GET", "/pods/{pod_id}", lambda call: self._shown(self._find(call))),
                        self._route("delete", "DELETE", "/pods/{pod_id}", self._delete),
                        self._route("action", "POST", "/pods/{pod_id}/action", self._act),
                        self._route("logs", "GET", "/pods/{pod_id}/logs", self._logs),
                        self._route("catalog", "GET", "/catalog/gpus", self._catalog),
                        self._route("billing", "GET", "/billing/pods", self._billing),
                        self._route("volumes", "GET", "/network-volumes", self._volumes),
                        self._route("resize", "PATCH", "/network-volumes/{volume_id}", self._resize),
                        self._route("unknown", None, "/{anything:path}", lambda _: Answer(response=_not_found(None))),
                    ],
                ),
                # What the fake adds to Runpod: its ledger, and the switches of its faults.
                Route("/_ledger", self._show_ledger),
                Route("/_faults", self._show_faults),
                Route("/_faults", self._replace_faults, methods=["PUT"]),
                Route("/{anything:path}", _not_found, methods=ANY_METHOD),
            ]
        )
        headers = {"Connection": "close"}
        self._server = AppServer(app, name="fake-runpod", host=host, port=port, headers=headers)
        self._settling = threading.Thread(target=self._settle, daemon=True)

    def __enter__(self) -> Self:
        self._server.start()
        self._settling.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.stop()
        self._settling.join()
        self._cloud.close()

    @property
    def origin(self) -> str:
        """Where the ledger is, at `/_ledger`, and the switches of the faults, at `/_faults`."""
        return self._server.url

    @property
    def url(self) -> str:
        """What a client of Runpod takes for the address of the API."""
        return f"{self.origin}{BASE}"

    def add_foreign(self, name: str) -> str:
        """The id of a new pod that somebody else has in the same account."""
        return self._cloud.add_foreign(name).id

    def preempt(self, pod_id: str, *, notice: timedelta | None = None) -> None:
        """Take the machine away: at once, or after the notice."""
        self._cloud.preempt(pod_id, notice)

    def vanish(self, pod_id: str) -> None:
        """The pod is gone, and nobody asked for it."""
        self._cloud.end(self._cloud.ever[pod_id])

    def pid(self, pod_id: str) -> int | None:
        """The process that runs the pod's command; everything in the pod descends from it."""
        container = self._cloud.ever[pod_id].container
        return None if container is None else container.pid

    def _settle(self) -> None:
        while not self._stopping.wait(SETTLING_S):
            self._cloud.settle()

    def _route(self, operation: str, method: str | None, path: str, handle: Callable[[Call], Answer]) -> Route:
        """A call: its answer may be delayed or cut by a fault, and is in the ledger before it is sent."""

        async def endpoint(request: Request) -> Response:
            if int(request.headers.get("Content-Length", "0")) > MAX_BODY_BYTES:
                return _problem(413, "the body is too large")
            call = Call(query=request.query_params, path=request.path_params, body=_json(await request.body()))
            pod = self._cloud.ever.get(call.path.get("pod_id", ""))
            answer = await run_in_threadpool(self._answer, operation, handle, call, pod, request.headers)
            request_id = f"fake-{next(self._numbers):08d}"
            body, timeline = redacted(call.body), self._cloud.timeline
            self.ledger.requests.append(
                RequestRecord(
                    id=request_id,
                    at=timeline.instant(timeline.now()),
                    method=request.method,
                    path=request.url.path,
                    operation=operation,
                    name=str(body.get("name")) if operation == "create" else pod.name if pod else None,
                    status=None if answer.cut_after == 0 else answer.response.status_code,
                    fault=answer.fault,
                    body=body,
                )
            )
            if slow := self._cloud.faults.strikes(Fault.SLOW, operation):
                await sleep_unless(self._stopping, slow.lasting.total_seconds())
            for name, value in {"x-request-id": request_id, **QUOTA_LEFT}.items():
                answer.response.headers.setdefault(name, value)
            if answer.cut_after == 0:
                self._server.cut(request)
            elif answer.cut_after is not None:
                return self._server.cut_in_body(request, answer.response, answer.cut_after)
            return answer.response

        return Route(path, endpoint, methods=ANY_METHOD if method is None else [method])

    def _answer(
        self,
        operation: str,
        handle: Callable[[Call], Answer],
        call: Call,
        pod: FakePod | None,
        headers: Mapping[str, str],
    ) -> Answer:
        scheme, _, key = headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or not key:
            return Answer(response=_problem(401, "missing bearer token"))
        if key != self.key and (pod is None or key != pod.own_key):
            return Answer(response=_problem(401, "invalid bearer token"))
        for fault, answer in _ANSWERS.items():
            if setting := self._cloud.faults.strikes(fault, operation):
                return Answer(response=answer(setting.lasting), fault=fault)
        try:
            return handle(call)
        except Refused as refused:
            return Answer(response=_problem(refused.status, refused.detail, errors=refused.errors))

    def _create(self, call: Call) -> Answer:
        pod = self._cloud.create(call.body)
        response = JSONResponse(pod_view(pod, self._cloud.timeline), status_code=201)
        strikes = self._cloud.faults.strikes
        if strikes(Fault.CREATED_THEN_500, pod.name):
            return Answer(response=_problem(500, "internal server error"), fault=Fault.CREATED_THEN_500)
        if strikes(Fault.CREATED_THEN_CUT, pod.name):
            return Answer(response=response, fault=Fault.CREATED_THEN_CUT, cut_after=0)
        if strikes(Fault.CREATED_THEN_GARBAGE, pod.name):
            half = bytes(response.body)[: len(response.body) // 2]
            garbage = Response(half, status_code=201, media_type=JSON)
            return Answer(response=garbage, fault=Fault.CREATED_THEN_GARBAGE)
        return Answer(response=response)

    def _list(self, call: Call) -> Answer:
        pods, fault = self._cloud.visible(), None
        if self._cloud.faults.strikes(Fault.LISTING_EMPTY, "list"):
            pods, fault = [], Fault.LISTING_EMPTY
        elif self._cloud.faults.strikes(Fault.LISTING_SHORT, "list"):
            pods, fault = pods[(len(pods) + 1) // 2 :], Fault.LISTING_SHORT
        limit, cursor = call.query.get("limit", str(MAX_PAGE)), call.query.get("cursor")
        if not limit.isdecimal() or not 1 <= int(limit) <= MAX_PAGE:
            raise Refused(422, "Request validation failed.", errors=("limit: from 1 to 1000",))
        if cursor and not cursor.isdecimal():
            raise Refused(422, "Request validation failed.", errors=("cursor: malformed",))
        size, after = min(int(limit), self._cloud.page_size), int(cursor) if cursor else None
        rest = [pod for pod in pods if after is None or pod.number < after]
        shown, more = rest[:size], len(rest) > size
        following = str(shown[-1].number) if more else None
        page = JSONResponse(
            {
                "pods": [pod_view(pod, self._cloud.timeline) for pod in shown],
                "pagination": {"nextCursor": following, "hasNextPage": more},
            }
        )
        if self._cloud.faults.strikes(Fault.LISTING_CUT, "list"):
            return Answer(response=page, fault=Fault.LISTING_CUT, cut_after=len(page.body) // 2)
        return Answer(response=page, fault=fault)

    def _find(self, call: Call) -> FakePod:
        pod = self._cloud.find(call.path["pod_id"])
        if self._cloud.faults.strikes(Fault.FALSE_404, pod.name):
            raise Refused(404, "pod not found")
        return pod

    def _shown(self, pod: FakePod) -> Answer:
        return Answer(response=JSONResponse(pod_view(pod, self._cloud.timeline)))

    def _delete(self, call: Call) -> Answer:
        pod = self._find(call)
        if self._cloud.faults.strikes(Fault.DELETE_IGNORED, pod.name):
            return Answer(response=Response(status_code=204), fault=Fault.DELETE_IGNORED)
        self._cloud.end(pod)
        return Answer(response=Response(status_code=204))

    def _act(self, call: Call) -> Answer:
        pod = self._find(call)
        body = _object(call.body)
        action = body.get("action")
        if set(body) != {"action"} or action not in {"start", "stop", "restart", "terminate"}:
            raise Refused(422, "Request validation failed.", errors=("$.action: unknown",))
        self._cloud.act(pod, str(action))
        if action == "terminate":
            return Answer(response=Response(status_code=204))
        return self._shown(pod)

    def _logs(self, call: Call) -> Answer:
        """A stream of events, which stays open for lines that are yet to come."""
        pod = self._find(call)
        sources = {call.query["source"]} if "source" in call.query else LOG_SOURCES
        tail = call.query.get("tail", "100")
        if not sources <= LOG_SOURCES or not tail.isdecimal() or int(tail) > MAX_LOG_LINES:
            raise Refused(422, "Request validation failed.", errors=("source or tail: not understood",))
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        return Answer(response=StreamingResponse(self._events(pod, sources, int(tail)), headers=headers))

    async def _events(self, pod: FakePod, sources: Collection[str], tail: int) -> AsyncIterator[str]:
        lines = pod.lines(sources)
        for entry in lines[-tail:] if tail else ():
            yield self._event(entry)
        last = lines[-1] if lines else None
        for number in range(MAX_LOG_POLLS):
            if await sleep_unless(self._stopping, LOG_POLL_S):
                return
            # By identity: the same line may be logged twice in the same moment.
            lines = pod.lines(sources)
            known = next((index for index, each in enumerate(lines) if each is last), -1)
            new = lines[known + 1 :]
            for entry in new:
                yield self._event(entry)
            last = new[-1] if new else last
            if number % KEEPALIVE_EVERY == 0:
                yield ": still here\n\n"

    def _event(self, entry: LogEntry) -> str:
        at, source, line = entry
        when = self._cloud.timeline.text(at)
        return f"id: {when}\ndata: {json.dumps({'ts': when, 'source': source, 'line': line})}\n\n"

    def _catalog(self, call: Call) -> Answer:
        wants_stock = "AVAILABILITY" in call.query.get("include", "").split(",")
        if wants_stock != ("product" in call.query):
            raise Refused(400, "include=AVAILABILITY and product need each other")
        out = self._cloud.faults.setting(Fault.NO_CAPACITY)

        def stock(gpu_id: str) -> str:
            return "NONE" if out is not None and (not out.only or gpu_id in out.only) else "HIGH"

        gpus = [gpu_view(gpu, availability=stock(gpu["id"]) if wants_stock else None) for gpu in GPUS.values()]
        return Answer(response=JSONResponse({"gpus": gpus}))

    def _billing(self, call: Call) -> Answer:
        """One record for each pod, over the time asked for as a whole."""
        timeline = self._cloud.timeline
        size = call.query.get("bucketSize", "day")
        if size not in BUCKETS or not call.query.get("lastN", "30").isdecimal():
            raise Refused(422, "Request validation failed.", errors=("bucketSize or lastN: not understood",))
        now = timeline.now()
        span = BUCKETS[size] * int(call.query.get("lastN", "30"))
        times = {"startTime": timeline.text(now - span.total_seconds()), "endTime": timeline.text(now)}
        wanted = call.query.get("podId")
        with self._cloud.lock:
            billed = [pod for pod in self._cloud.ever.values() if wanted is None or pod.id == wanted]
            records = [
                {**times, "podId": pod.id, **amounts(pod.cost(now), gpu=pod.gpu_type is not None)} for pod in billed
            ]
            total = sum((pod.cost(now) for pod in billed), Decimal(0))
        metadata = {
            "query": {**times, "bucketSize": size, "podId": wanted},
            "recordCount": len(records),
            "uniquePodCount": len(records),
            "totals": amounts(total, gpu=True),
        }
        return Answer(response=JSONResponse({"records": records, "metadata": metadata}))

    def _volumes(self, _: Call) -> Answer:
        shown = [volume_view(volume) for volume in self._cloud.volumes.values()]
        return Answer(response=JSONResponse({"networkVolumes": shown}))

    def _resize(self, call: Call) -> Answer:
        """A volume only grows."""
        volume = self._cloud.volumes.get(call.path["volume_id"])
        if volume is None:
            raise Refused(404, "network volume not found")
        body = _object(call.body)
        size = body.get("size")
        if not isinstance(size, int) or not volume.size_gb <= size <= MAX_VOLUME_GB or set(body) != {"size"}:
            raise Refused(400, f"$.size: a whole number from {volume.size_gb} to {MAX_VOLUME_GB}")
        grown = self._cloud.volumes[volume.id] = replace(volume, size_gb=size)
        return Answer(response=JSONResponse(volume_view(grown)))

    def _show_ledger(self, _: Request) -> Response:
        return Response(json.dumps(self.ledger.shown(), default=str), media_type=JSON)

    def _show_faults(self, _: Request) -> Response:
        return JSONResponse(self._cloud.faults.shown())

    async def _replace_faults(self, request: Request) -> Response:
        try:
            self._cloud.faults.replace(_object(_json(await request.body())))
        except (TypeError, ValueError) as error:
            return _problem(422, str(error))
        return self._show_faults(request)


def _not_found(_: Request | None) -> Response:
    return _problem(404, "resource not found")


def _problem(
    status: int, detail: str, *, errors: tuple[str, ...] = (), headers: Mapping[str, str] | None = None
) -> Response:
    body: dict[str, object] = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    if errors:
        body["errors"] = list(errors)
    return JSONResponse(body, status_code=status, headers=headers, media_type="application/problem+json")


def _html(status: int) -> Response:
    """What a network in between answers, in its own language."""
    title = f"{status} {HTTPStatus(status).phrase}"
    page = f"<!DOCTYPE html><html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>"
    return HTMLResponse(page, status_code=status)


def _too_many(wait: timedelta) -> Response:
    seconds = max(1, int(wait.total_seconds()))
    limit = f'"minute";r=0;t={seconds}, "hour";r=2800;t=1800'
    headers = {"Retry-After": str(seconds), "RateLimit": limit, **POLICY}
    return _problem(429, "rate limit exceeded for the minute window", headers=headers)


_ANSWERS: Mapping[Fault, Callable[[timedelta], Response]] = {
    Fault.UNAUTHORIZED: lambda _: _problem(401, "invalid bearer token"),
    Fault.FORBIDDEN: lambda _: _problem(403, "access denied"),
    Fault.NO_BALANCE: lambda _: _problem(402, "your balance is too low"),
    Fault.STORM_429: _too_many,
    Fault.STORM_500: lambda _: _problem(500, "internal server error"),
    Fault.HTML_403: lambda _: _html(403),
    Fault.HTML_502: lambda _: _html(502),
}
"""Of faults that strike before anything is done."""


def _json(body: bytes) -> object:
    try:
        return json.loads(body) if body else None
    except (ValueError, RecursionError):
        return None


def _object(body: object) -> dict[str, object]:
    return cast("dict[str, object]", body) if isinstance(body, dict) else {}
