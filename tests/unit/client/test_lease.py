"""A lease in a program: kept by heartbeats, given back at the end, and lost in time (L2)."""

import asyncio
import time
from typing import Any

import httpx
import pytest

from herdsman.client import LeaseDenied, LeaseLost
from herdsman.client.lease import Lost
from tests.unit.client.local_server import Served, refused, said

GRANTED: dict[str, Any] = {
    "granted": True,
    "token": "t" * 20,
    "lease_seq": 7,
    "mode": "gpu",
    "node_id": "n1",
    "gpu_index": 3,
    "gpu_uuid": "GPU-3",
    "memory_mb": 8000,
    "expires_at": "2026-01-01T00:01:00Z",
    "ttl_seconds": 60,
    "margin_seconds": 5,
}
KEPT = {"token": "t" * 20, "expires_at": "2026-01-01T00:02:00Z", "margin_seconds": 5}
DENIED = {"granted": False, "reason": "leased", "detail": "all is leased", "retry_after_seconds": 5}
PATH = f"POST /leases/{'t' * 20}"


def routes(**answers: Any) -> Any:
    """By the last word of the path."""

    def answer(request: httpx.Request) -> httpx.Response:
        word = request.url.path.rpartition("/")[2]
        found: Any = answers[word]
        if callable(found):
            answered: httpx.Response = found(request)  # pyright: ignore[reportAssignmentType]
            return answered
        return said(found)

    return answer


def lease_out() -> dict[str, Any]:
    moments = {"created_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T00:01:00Z"}
    return {
        **{
            name: GRANTED[name]
            for name in ("token", "mode", "node_id", "gpu_index", "gpu_uuid", "memory_mb", "lease_seq")
        },
        **moments,
        "agent": "ann",
        "agent_name": "ann",
        "status": "released",
        "reason": "released",
        "exclusive": False,
        "worker_id": None,
        "last_heartbeat": None,
        "ended_at": None,
        "overruled": None,
        "metadata": {},
    }


def test_a_lease_is_taken_and_given_back() -> None:
    served = Served(routes(leases=GRANTED, release=lease_out()))
    with served.client(agent="ann") as client, client.lease(memory_mb=8000, ttl=60) as lease:
        assert (lease.token, lease.seq, lease.gpu_index, lease.node_id, lease.mode) == (
            "t" * 20,
            7,
            3,
            "n1",
            "gpu",
        )
        lease.check()
    assert served.paths == ["POST /leases", f"{PATH}/release"]
    body = served.bodies[0]
    assert (body["agent"], body["min_memory_mb"], body["ttl_seconds"]) == ("ann", 8000, 60)
    assert len(body["token"]) >= 16, "a lost answer is asked for again by the same name"


def test_what_is_denied_says_why_and_when_to_ask_again() -> None:
    served = Served(routes(leases=DENIED))
    with served.client() as client, pytest.raises(LeaseDenied) as denied, client.lease(memory_mb=8000):
        pass
    assert denied.value.reason == "leased"
    assert denied.value.retry_after is not None and denied.value.retry_after.total_seconds() == 5
    assert served.paths == ["POST /leases"]


def test_l2_a_lease_is_lost_before_its_end_when_no_heartbeat_is_taken() -> None:
    served = Served(routes(leases=GRANTED, release=lease_out()))
    with served.client() as client, client.lease(memory_mb=8000) as lease:
        served.clock.now += 54.9
        lease.check()
        served.clock.now += 0.2
        assert lease.lost.is_set()
        with pytest.raises(LeaseLost, match="no heartbeat"):
            lease.check()


def test_l2_the_time_of_a_heartbeat_begins_when_it_was_sent() -> None:
    served = Served(routes(leases=GRANTED, heartbeat=KEPT, release=lease_out()))

    def slow(_request: httpx.Request) -> httpx.Response:
        served.clock.now += 20
        return said(KEPT)

    served.answers = [routes(leases=GRANTED, heartbeat=slow, release=lease_out())]
    with served.client() as client, client.lease(memory_mb=8000) as lease:
        asyncio.run(lease.beat())
        assert lease.lost.left == pytest.approx(35)


def over(_request: httpx.Request) -> httpx.Response:
    return refused(410, "gone", "it is over")


def test_l2_a_heartbeat_that_is_gone_loses_the_lease_at_once() -> None:
    served = Served(routes(leases=GRANTED, heartbeat=over, release=lease_out()))
    with served.client() as client, client.lease(memory_mb=8000) as lease:
        asyncio.run(lease.beat())
        with pytest.raises(LeaseLost, match="it is over"):
            lease.check()


def test_an_answer_that_was_held_back_is_followed_by_a_heartbeat() -> None:
    served = Served(routes(leases=GRANTED, heartbeat=KEPT, release=lease_out()))
    with served.client() as client, client.lease(memory_mb=8000, wait=30) as lease:
        lease.check()
    assert served.paths == ["POST /leases", f"{PATH}/heartbeat", f"{PATH}/release"]


def test_heartbeats_are_sent_by_themselves() -> None:
    """In real time: a lease of 0.3 seconds lives as long as its block."""
    short = {**GRANTED, "ttl_seconds": 0.3, "margin_seconds": 0.0}
    served = Served(routes(leases=short, heartbeat={**KEPT, "margin_seconds": 0}, release=lease_out()))
    with served.client() as client, client.lease(memory_mb=8000):
        for _ in range(600):
            if served.paths.count(f"{PATH}/heartbeat") >= 3:
                break
            time.sleep(0.01)
    assert served.paths.count(f"{PATH}/heartbeat") >= 3


def test_a_block_that_fails_gives_its_lease_back_too() -> None:
    served = Served(routes(leases=GRANTED, release=lease_out()))
    with served.client() as client, pytest.raises(ZeroDivisionError), client.lease(memory_mb=1):
        raise ZeroDivisionError
    assert served.paths[-1] == f"{PATH}/release"


def test_a_program_with_an_event_loop_does_the_same() -> None:
    served = Served(routes(leases=GRANTED, release=lease_out()))

    async def scene() -> None:
        async with served.async_client(agent="ann") as client, client.lease(memory_mb=8000) as lease:
            lease.check()

    asyncio.run(scene())
    assert served.paths == ["POST /leases", f"{PATH}/release"]


def test_what_is_lost_stays_lost() -> None:
    now = [0.0]
    lost = Lost(lambda: now[0], 10)
    now[0] = 10
    lost.move(20)
    assert lost.is_set() and lost.wait(0)
    fresh = Lost(lambda: now[0], 20)
    assert not fresh.wait(0) and not fresh.is_set()
    fresh.set("told")
    assert fresh.reason == "told"
