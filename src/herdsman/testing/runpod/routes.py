"""What each call of the API does to the cloud."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import cast

from herdsman.testing.runpod.catalog import GPUS, Gpu
from herdsman.testing.runpod.cloud import Cloud
from herdsman.testing.runpod.faults import Fault
from herdsman.testing.runpod.pods import FakePod
from herdsman.testing.runpod.replies import Refused, Reply, nothing, ok, problem
from herdsman.testing.runpod.views import amounts, gpu_view, pod_view, volume_view

LARGEST_PAGE = 1000
MOST_GB = 4096
BUCKETS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    key: str | None
    """What the caller proves its right with."""
    body: object = None


def create(cloud: Cloud, request: Request) -> Reply:
    pod = cloud.create(request.body)
    reply = ok(pod_view(pod, cloud.timeline), status=201)
    if cloud.faults.strikes(Fault.CREATED_THEN_500, pod.name):
        return problem(500, "internal server error", fault=Fault.CREATED_THEN_500)
    if cloud.faults.strikes(Fault.CREATED_THEN_CUT, pod.name):
        return Reply(status=201, body=reply.body, cut_after=0, fault=Fault.CREATED_THEN_CUT)
    if cloud.faults.strikes(Fault.CREATED_THEN_GARBAGE, pod.name):
        return Reply(status=201, body=reply.body[: len(reply.body) // 2], fault=Fault.CREATED_THEN_GARBAGE)
    return reply


def list_pods(cloud: Cloud, request: Request) -> Reply:
    pods = cloud.visible()
    fault: str | None = None
    if cloud.faults.strikes(Fault.LISTING_EMPTY, "list"):
        pods, fault = [], Fault.LISTING_EMPTY
    elif cloud.faults.strikes(Fault.LISTING_SHORT, "list"):
        pods, fault = pods[(len(pods) + 1) // 2 :], Fault.LISTING_SHORT
    reply = _page(cloud, pods, request.query)
    if cloud.faults.strikes(Fault.LISTING_CUT, "list"):
        return Reply(status=200, body=reply.body, cut_after=len(reply.body) // 2, fault=Fault.LISTING_CUT)
    return Reply(status=200, body=reply.body, fault=fault)


def get(cloud: Cloud, pod: FakePod) -> Reply:
    return ok(pod_view(pod, cloud.timeline))


def delete(cloud: Cloud, pod: FakePod) -> Reply:
    if cloud.faults.strikes(Fault.DELETE_IGNORED, pod.name):
        return Reply(status=204, fault=Fault.DELETE_IGNORED)
    cloud.end(pod)
    return nothing()


def act(cloud: Cloud, pod: FakePod, request: Request) -> Reply:
    body = cast("dict[str, object]", request.body) if isinstance(request.body, dict) else {}
    action = body.get("action")
    if set(body) != {"action"} or action not in {"start", "stop", "restart", "terminate"}:
        raise Refused(422, "Request validation failed.", errors=("$.action: unknown",))
    cloud.act(pod, str(action))
    return nothing() if action == "terminate" else ok(pod_view(pod, cloud.timeline))


def catalog(cloud: Cloud, request: Request) -> Reply:
    wants_stock = "AVAILABILITY" in request.query.get("include", "").split(",")
    if wants_stock != ("product" in request.query):
        raise Refused(400, "include=AVAILABILITY and product need each other")
    gpus = [gpu_view(gpu, availability=_stock(cloud, gpu) if wants_stock else None) for gpu in GPUS.values()]
    return ok({"gpus": gpus})


def billing(cloud: Cloud, request: Request) -> Reply:
    """One record for each pod, over the time asked for as a whole."""
    timeline = cloud.timeline
    size = request.query.get("bucketSize", "day")
    if size not in BUCKETS or not request.query.get("lastN", "30").isdecimal():
        raise Refused(422, "Request validation failed.", errors=("bucketSize or lastN: not understood",))
    now = timeline.now()
    span = BUCKETS[size] * int(request.query.get("lastN", "30"))
    times = {"startTime": timeline.text(now - span.total_seconds()), "endTime": timeline.text(now)}
    wanted = request.query.get("podId")
    with cloud.lock:
        billed = [pod for pod in cloud.ever.values() if wanted is None or pod.id == wanted]
        records = [
            {**times, "podId": pod.id, **amounts(pod.cost(now), gpu=pod.gpu_type is not None)}
            for pod in billed
        ]
        total = sum((pod.cost(now) for pod in billed), Decimal(0))
    query = {**times, "bucketSize": size, "podId": wanted}
    metadata = {
        "query": query,
        "recordCount": len(records),
        "uniquePodCount": len(records),
        "totals": amounts(total, gpu=True),
    }
    return ok({"records": records, "metadata": metadata})


def volumes(cloud: Cloud) -> Reply:
    return ok({"networkVolumes": [volume_view(volume) for volume in cloud.volumes.values()]})


def resize(cloud: Cloud, request: Request) -> Reply:
    """A volume only grows."""
    volume = cloud.volumes.get(request.path.rpartition("/")[2])
    if volume is None:
        raise Refused(404, "network volume not found")
    body = cast("dict[str, object]", request.body) if isinstance(request.body, dict) else {}
    size = body.get("size")
    if not isinstance(size, int) or not volume.size_gb <= size <= MOST_GB or set(body) != {"size"}:
        raise Refused(400, f"$.size: a whole number from {volume.size_gb} to {MOST_GB}")
    cloud.volumes[volume.id] = replace(volume, size_gb=size)
    return ok(volume_view(cloud.volumes[volume.id]))


def _stock(cloud: Cloud, gpu: Gpu) -> str:
    out = cloud.faults.setting(Fault.NO_CAPACITY)
    return "NONE" if out is not None and (not out.only or gpu.id in out.only) else "HIGH"


def _page(cloud: Cloud, pods: list[FakePod], query: Mapping[str, str]) -> Reply:
    limit = query.get("limit", str(LARGEST_PAGE))
    if not limit.isdecimal() or not 1 <= int(limit) <= LARGEST_PAGE:
        raise Refused(422, "Request validation failed.", errors=("limit: from 1 to 1000",))
    size = min(int(limit), cloud.page_size)
    after = _number(query["cursor"]) if query.get("cursor") else None
    rest = [pod for pod in pods if after is None or pod.number < after]
    shown, more = rest[:size], len(rest) > size
    pagination = {"nextCursor": _cursor(shown[-1]) if more else None, "hasNextPage": more}
    return ok({"pods": [pod_view(pod, cloud.timeline) for pod in shown], "pagination": pagination})


def _cursor(last: FakePod) -> str:
    return base64.urlsafe_b64encode(f"after:{last.number}".encode()).decode()


def _number(cursor: str) -> int:
    try:
        word, number = base64.urlsafe_b64decode(cursor.encode()).decode().split(":")
        if word == "after":
            return int(number)
    except (binascii.Error, ValueError):
        pass
    raise Refused(422, "Request validation failed.", errors=("cursor: malformed",))
