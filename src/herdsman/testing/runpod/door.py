"""Who asks for what: the key, the faults that strike any call, the way to the right function, the ledger."""

import itertools
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import cast

from herdsman.testing.runpod import routes
from herdsman.testing.runpod.cloud import Cloud
from herdsman.testing.runpod.events import log_events
from herdsman.testing.runpod.faults import Fault
from herdsman.testing.runpod.ledger import Asked, Ledger, redacted
from herdsman.testing.runpod.pods import FakePod
from herdsman.testing.runpod.replies import Refused, Reply, ok, page, problem
from herdsman.testing.runpod.routes import Request

BASE = "/v2"
POLICY = {"RateLimit-Policy": '"minute";q=60;w=60, "hour";q=3000;w=3600'}
QUOTA_LEFT = {"RateLimit": '"minute";r=59;t=60, "hour";r=2999;t=3600', **POLICY}
COLLECTIONS = {
    ("GET", "/pods"): "list",
    ("POST", "/pods"): "create",
    ("GET", "/catalog/gpus"): "catalog",
    ("GET", "/billing/pods"): "billing",
    ("GET", "/network-volumes"): "volumes",
}
ON_ONE_POD = {
    ("GET", ""): "get",
    ("DELETE", ""): "delete",
    ("POST", "action"): "action",
    ("GET", "logs"): "logs",
}


class Door:
    def __init__(self, cloud: Cloud, ledger: Ledger, *, key: str, stopping: threading.Event) -> None:
        self._cloud = cloud
        self._ledger = ledger
        self._key = key
        self._stopping = stopping
        self._numbers = itertools.count(1)

    def answer(self, request: Request) -> Reply:
        """Never an exception for what somebody sends."""
        if not request.path.startswith(f"{BASE}/"):
            return self._own(request)
        operation, pod_id = _route(request.method, request.path.removeprefix(BASE))
        pod = self._cloud.ever.get(pod_id or "")
        reply = self._try(operation, request, pod)
        request_id = f"fake-{next(self._numbers):08d}"
        self._note(request_id, request, operation, pod, reply)
        slow = self._cloud.faults.strikes(Fault.SLOW, operation)
        return replace(
            reply,
            delay_s=slow.lasting.total_seconds() if slow else 0.0,
            headers={"x-request-id": request_id, **QUOTA_LEFT, **reply.headers},
        )

    def _try(self, operation: str, request: Request, pod: FakePod | None) -> Reply:
        if not self._may(request.key, pod):
            return problem(401, "missing bearer token" if request.key is None else "invalid bearer token")
        try:
            return self._struck(operation) or self._do(operation, request, pod)
        except Refused as refused:
            return problem(refused.status, refused.detail, errors=refused.errors)

    def _may(self, key: str | None, pod: FakePod | None) -> bool:
        return key == self._key or (pod is not None and key == pod.own_key)

    def _struck(self, operation: str) -> Reply | None:
        """The answer of a fault that strikes before anything is done."""
        answers: Mapping[Fault, Callable[[timedelta], Reply]] = {
            Fault.UNAUTHORIZED: lambda _: problem(401, "invalid bearer token"),
            Fault.FORBIDDEN: lambda _: problem(403, "access denied"),
            Fault.NO_BALANCE: lambda _: problem(402, "your balance is too low"),
            Fault.STORM_429: _too_many,
            Fault.STORM_500: lambda _: problem(500, "internal server error"),
            Fault.HTML_403: lambda _: page(403, Fault.HTML_403),
            Fault.HTML_502: lambda _: page(502, Fault.HTML_502),
        }
        for fault, answer in answers.items():
            setting = self._cloud.faults.strikes(fault, operation)
            if setting is not None:
                return replace(answer(setting.lasting), fault=fault)
        return None

    def _do(self, operation: str, request: Request, pod: FakePod | None) -> Reply:
        match operation:
            case "list":
                return routes.list_pods(self._cloud, request)
            case "create":
                return routes.create(self._cloud, request)
            case "catalog":
                return routes.catalog(self._cloud, request)
            case "billing":
                return routes.billing(self._cloud, request)
            case "volumes":
                return routes.volumes(self._cloud)
            case "resize":
                return routes.resize(self._cloud, request)
            case "unknown":
                raise Refused(404, "resource not found")
            case _:
                return self._do_to(self._seen(pod), operation, request)

    def _seen(self, pod: FakePod | None) -> FakePod:
        found = self._cloud.find(pod.id if pod is not None else "")
        if self._cloud.faults.strikes(Fault.FALSE_404, found.name):
            raise Refused(404, "pod not found")
        return found

    def _do_to(self, pod: FakePod, operation: str, request: Request) -> Reply:
        match operation:
            case "get":
                return routes.get(self._cloud, pod)
            case "delete":
                return routes.delete(self._cloud, pod)
            case "action":
                return routes.act(self._cloud, pod, request)
            case _:
                events = log_events(pod, request.query, self._cloud.timeline, self._stopping)
                return Reply(status=200, kind="text/event-stream", events=events)

    def _own(self, request: Request) -> Reply:
        """What the fake adds to Runpod: its ledger, and the switches of its faults."""
        faults = self._cloud.faults
        match request.method, request.path:
            case "GET", "/_ledger":
                return Reply(status=200, body=json.dumps(self._ledger.shown(), default=str).encode())
            case "GET", "/_faults":
                return ok(faults.shown())
            case "PUT", "/_faults":
                return self._switch(request.body)
            case _:
                return problem(404, "resource not found")

    def _switch(self, wanted: object) -> Reply:
        try:
            self._cloud.faults.replace(cast("dict[str, object]", wanted) if isinstance(wanted, dict) else {})
        except (TypeError, ValueError) as error:
            return problem(422, str(error))
        return ok(self._cloud.faults.shown())

    def _note(
        self, request_id: str, request: Request, operation: str, pod: FakePod | None, reply: Reply
    ) -> None:
        body = redacted(request.body)
        timeline = self._cloud.timeline
        self._ledger.note(
            Asked(
                id=request_id,
                at=timeline.instant(timeline.now()),
                method=request.method,
                path=request.path,
                operation=operation,
                name=str(body.get("name")) if operation == "create" else pod.name if pod else None,
                status=None if reply.cut_after == 0 else reply.status,
                fault=reply.fault,
                body=body,
            )
        )


def _route(method: str, path: str) -> tuple[str, str | None]:
    if (method, path) in COLLECTIONS:
        return COLLECTIONS[method, path], None
    match path.split("/"):
        case ["", "pods", pod_id]:
            return ON_ONE_POD.get((method, ""), "unknown"), pod_id
        case ["", "network-volumes", _] if method == "PATCH":
            return "resize", None
        case ["", "pods", pod_id, part] if part:
            return ON_ONE_POD.get((method, part), "unknown"), pod_id
        case _:
            return "unknown", None


def _too_many(wait: timedelta) -> Reply:
    seconds = max(1, int(wait.total_seconds()))
    headers = {
        "Retry-After": str(seconds),
        "RateLimit": f'"minute";r=0;t={seconds}, "hour";r=2800;t=1800',
        **POLICY,
    }
    return problem(429, "rate limit exceeded for the minute window", headers=headers)
