"""A listing is complete or an error; what it holds is read without trust."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx
import pytest

from herdsman.errors import ProviderUnavailable
from herdsman.fleet.model import InstanceRef, InstanceStatus
from herdsman.providers.runpod import RunpodProvider
from herdsman.providers.runpod.provider import MOST_PAGES, PAGE
from herdsman.testing.clocks import ManualClock
from tests.support.runpod import NAMING, some_options


def a_pod(own_part: str, **fields: Any) -> dict[str, Any]:
    return {"id": own_part, "name": NAMING.name(own_part), "status": "RUNNING", **fields}


def a_page(*pods: dict[str, Any], cursor: str | None = None) -> dict[str, Any]:
    return {"pods": pods, "pagination": {"nextCursor": cursor, "hasNextPage": cursor is not None}}


def listing(*pages: object, **options: Any) -> RunpodProvider:
    """A Runpod whose pages are these; the cursor of each is the number of the next."""

    def answer(request: httpx.Request) -> httpx.Response:
        page = pages[int(request.url.params.get("cursor", "0"))]
        return page if isinstance(page, httpx.Response) else httpx.Response(200, content=json.dumps(page))

    return RunpodProvider(some_options(**options), ManualClock(), transport=httpx.MockTransport(answer))


def test_pages_are_read_to_the_last_one() -> None:
    provider = listing(a_page(a_pod("c"), cursor="1"), a_page(cursor="2"), a_page(a_pod("b"), a_pod("a")))
    assert [each.ref for each in provider.list_instances()] == ["c", "b", "a"]


def test_a_pod_that_was_pushed_onto_the_next_page_counts_once() -> None:
    provider = listing(a_page(a_pod("b"), a_pod("a"), cursor="1"), a_page(a_pod("a")))
    assert [each.ref for each in provider.list_instances()] == ["b", "a"]


def test_an_api_that_knows_no_pages_is_understood() -> None:
    assert len(listing({"pods": [a_pod("a")]}).list_instances()) == 1


BROKEN: dict[str, object] = {
    "an error": httpx.Response(500),
    "no JSON": httpx.Response(200, content=b"<html>"),
    "not an object": [],
    "no pods": {"pagination": {"hasNextPage": False}},
    "pods of no kind": {"pods": {"a": 1}},
    "a pod of no kind": {"pods": ["a"]},
    "a pod without a name": {"pods": [{"id": "a", "status": "RUNNING"}]},
    "no way on": {"pods": [], "pagination": {"hasNextPage": True, "nextCursor": None}},
    "in doubt about the next": {"pods": [], "pagination": {"nextCursor": None}},
    "in a circle": a_page(cursor="1"),
    "full, without a word on pages": {"pods": [a_pod(str(number)) for number in range(PAGE)]},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_one_broken_page_makes_the_whole_an_error(broken: object) -> None:
    with pytest.raises(ProviderUnavailable):
        listing(a_page(a_pod("a"), cursor="1"), broken).list_instances()


def test_a_listing_without_end_is_left() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params.get("cursor", ""))
        return httpx.Response(200, json=a_page(cursor=str(len(asked))))

    provider = RunpodProvider(some_options(), ManualClock(), transport=httpx.MockTransport(answer))
    with pytest.raises(ProviderUnavailable, match="does not end"):
        provider.list_instances()
    assert len(asked) == MOST_PAGES


def test_only_our_own_are_listed() -> None:
    names = ["gpu--test-b--x", "gpu--test2--x", "gpu-test-x", "mine", "GPU--test--x", "x-gpu--test--x"]
    foreign = [{"id": str(number), "name": name, "status": "RUNNING"} for number, name in enumerate(names)]
    assert [each.ref for each in listing(a_page(*foreign, a_pod("w"))).list_instances()] == ["w"]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("PROVISIONING", InstanceStatus.STARTING),
        ("STARTING", InstanceStatus.STARTING),
        ("RUNNING", InstanceStatus.RUNNING),
        ("EXITED", InstanceStatus.STOPPED),
        ("ERROR", InstanceStatus.BROKEN),
        ("HIBERNATING", InstanceStatus.UNKNOWN),
    ],
)
def test_each_status_has_a_state(status: str, state: InstanceStatus) -> None:
    (seen,) = listing(a_page(a_pod("a", status=status))).list_instances()
    assert seen.status is state


def test_a_terminated_pod_is_gone() -> None:
    assert listing(a_page(a_pod("a", status="TERMINATED"))).list_instances() == []


def test_what_we_do_not_know_is_ignored_and_what_is_odd_left_out() -> None:
    plain = a_pod("a", cost=0.1, createdAt="2026-06-01T12:00:00Z", gpu={"id": "X", "count": 2}, news=[{}])
    odd = a_pod("b", cost="dear", createdAt="yesterday", gpu={"id": 7, "count": -1}, runtime=[], startedAt=3)
    bare = a_pod("c", cost=float("nan"), createdAt="2026-06-01T12:00:00", gpu=None)
    one, two, three = listing(a_page(plain, odd, bare)).list_instances()
    assert (one.gpu_type, one.gpu_count, one.cost_per_hour) == ("X", 2, Decimal("0.1"))
    assert one.created_at == datetime(2026, 6, 1, 12, tzinfo=UTC)
    for each in (two, three):
        assert (each.gpu_type, each.gpu_count, each.cost_per_hour, each.created_at) == (None, 0, 0, None)


MAPPED = {"ports": [{"private": 22, "public": 34446, "type": "tcp", "ip": "195.26.233.3"}]}
UNMAPPED: list[object] = [
    None,
    {},
    {"ports": []},
    {"ports": [{"private": 22, "public": None}]},
    {"ports": [1]},
]


@pytest.mark.parametrize("runtime", UNMAPPED)
def test_a_pod_with_ssh_runs_only_when_it_can_be_reached(runtime: object) -> None:
    def state(runtime: object, **options: Any) -> InstanceStatus:
        (seen,) = listing(a_page(a_pod("a", runtime=runtime)), **options).list_instances()
        return seen.status

    assert state(runtime, ports=("22/tcp",)) is InstanceStatus.STARTING
    assert state(MAPPED, ports=("22/tcp",)) is InstanceStatus.RUNNING
    assert state(runtime) is InstanceStatus.RUNNING


def test_every_call_names_itself_and_proves_its_right() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=a_page())

    options = some_options(api_url="https://proxy.example/runpod/v2/")
    RunpodProvider(options, ManualClock(), transport=httpx.MockTransport(answer)).list_instances()
    assert str(asked[0].url) == f"https://proxy.example/runpod/v2/pods?limit={PAGE}"
    assert asked[0].headers["authorization"] == f"Bearer {options.api_key.get_secret_value()}"
    assert asked[0].headers["user-agent"].startswith("herdsman/")


REF = InstanceRef("pod1")


def test_a_log_is_read_within_limits() -> None:
    stream = (
        b': hello\r\n\r\nid: 1\r\ndata: {"ts": "t", "source": "container", "line": "one"}\r\n\r\n'
        b'data: no json\n\ndata: {"line": 7}\n\nevent: data\n\n'
        b"data: " + json.dumps({"line": "x" * 9000}).encode() + b'\n\ndata: {"line": "three"}\n\n'
    )
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, content=stream, headers={"content-type": "text/event-stream"})

    provider = RunpodProvider(some_options(), ManualClock(), transport=httpx.MockTransport(answer))
    one, two, three = provider.logs(REF, 10)
    assert (one, len(two), three) == ("one", 4096, "three")
    assert len(provider.logs(REF, 2)) == 2
    provider.logs(REF, 10**9)
    assert [request.url.params["tail"] for request in asked] == ["10", "2", "5000"]
    assert provider.logs(REF, 0) == []
