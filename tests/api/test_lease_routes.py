"""Leases over HTTP: who may ask, what is answered, and what becomes of a caller that hangs up."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.jobs.commands import read_events
from herdsman.jobs.wire import EventOut
from herdsman.leases.commands import list_leases
from herdsman.leases.rules import LeaseMode, LeasePolicy
from tests.api.calling import HERE, Client
from tests.api.conftest import Tokens
from tests.support.databases import MovingClock
from tests.support.gpus import TOTAL, a_lease, a_node

PATIENCE = 30


def body(memory_mb: int = 8000, **more: Any) -> dict[str, Any]:
    return {"agent": "ann", "min_memory_mb": memory_mb, **more}


def device(index: int = 0, **more: Any) -> dict[str, Any]:
    return {"index": index, "uuid": f"GPU-n1-{index}", "name": "x", "total_mb": TOTAL, "used_mb": 0, **more}


def lent(client: Client, header: dict[str, str], memory_mb: int = 8000, **more: Any) -> dict[str, Any]:
    answer = client.post("/leases", json=body(memory_mb, **more), headers=header)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_lease_is_asked_for_kept_and_released(client: Client, tokens: Tokens, services: Services) -> None:
    a_node(services)
    ann = tokens.header(Role.SUBMITTER, "ann")
    got = lent(client, ann, ttl_seconds=60)
    assert got["granted"] is True and got["gpu_index"] == 0 and got["mode"] == "gpu"
    assert (got["lease_seq"], got["node_id"], got["memory_mb"], got["margin_seconds"]) == (1, "n1", 8000, 5)
    kept = client.post(f"/leases/{got['token']}/heartbeat", json={"timestamp": 12.5}, headers=ann)
    assert kept.status_code == 200
    assert datetime.fromisoformat(kept.json()["expires_at"]) >= datetime.fromisoformat(got["expires_at"])
    for _ in range(2):
        done = client.post(f"/leases/{got['token']}/release", headers=ann)
        assert (done.status_code, done.json()["status"]) == (200, "released")
    assert client.post(f"/leases/{got['token']}/heartbeat", headers=ann).status_code == 410


def test_both_spellings_of_the_agent_are_taken(client: Client, tokens: Tokens, services: Services) -> None:
    a_node(services)
    admin = tokens.header(Role.ADMIN)
    for spelling in ("agent", "agent_name"):
        answer = client.post("/leases", json={spelling: "bob", "min_memory_mb": 10}, headers=admin)
        assert answer.status_code == 201
    found = client.get("/leases", headers=admin).json()["leases"]
    assert {each["agent_name"] for each in found} == {"bob"}


def test_a_refusal_says_why_and_when_to_ask_again(client: Client, tokens: Tokens, services: Services) -> None:
    a_node(services)
    ann = tokens.header(Role.SUBMITTER, "ann")
    lent(client, ann, 20_000)
    answer = client.post("/leases", json=body(8000), headers=ann)
    assert answer.status_code == 200
    told = answer.json()
    assert (told["granted"], told["reason"]) == (False, "leased")
    assert "8000" in told["detail"] and told["retry_after_seconds"] > 0
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ttl_seconds", 0),
        ("ttl_seconds", -5),
        ("ttl_seconds", 1e12),
        ("min_memory_mb", 0),
        ("min_memory_mb", -1),
        ("min_memory_mb", 10**15),
        ("wait_seconds", -1),
        ("wait_seconds", 61),
        ("gpu_index", -1),
        ("node", "a b"),
        ("token", "short"),
        ("agent", "no such thing!"),
    ],
)
def test_odd_values_are_422_and_name_field_value_and_rule(
    client: Client, tokens: Tokens, field: str, value: object
) -> None:
    answer = client.post("/leases", json={**body(), field: value}, headers=tokens.header(Role.ADMIN))
    assert answer.status_code == 422, answer.text
    detail = answer.json()["detail"]
    assert field in detail and "must" in detail


def test_the_token_of_a_lease_is_shown_only_to_who_may_end_it(
    client: Client, tokens: Tokens, services: Services
) -> None:
    a_node(services)
    secret = a_lease(services, agent="ann").token
    shown = {
        role: client.get("/leases", headers=tokens.header(role, "ann"))
        for role in (Role.SUBMITTER, Role.OPERATOR, Role.ADMIN, Role.VIEWER)
    }
    assert {role for role, answer in shown.items() if secret in answer.text} == set(shown) - {Role.VIEWER}
    (seen,) = shown[Role.VIEWER].json()["leases"]
    events = [EventOut.of(each) for each in read_events(services, 0) if each.kind == "lease"]
    assert events
    assert {each.object_id for each in events} == {seen["lease_id"]}
    assert secret not in "".join(each.model_dump_json() for each in events)


def test_x2_a_submitter_asks_and_sees_only_for_its_own_agent(
    client: Client, tokens: Tokens, services: Services
) -> None:
    a_node(services)
    other = a_lease(services, agent="other").token
    ann = tokens.header(Role.SUBMITTER, "ann")
    assert client.post("/leases", json=body() | {"agent": "other"}, headers=ann).status_code == 403
    mine = client.post("/leases", json={"min_memory_mb": 10}, headers=ann).json()
    found = client.get("/leases", params={"agent": "other"}, headers=ann).json()["leases"]
    assert [each["token"] for each in found] == [mine["token"]]
    for word in ("heartbeat", "release"):
        assert client.post(f"/leases/{other}/{word}", headers=ann).status_code == 404
    assert client.post(f"/leases/{other}/release", headers=tokens.header(Role.OPERATOR, "eve")).status_code == 200


def test_an_operator_revokes_and_the_holder_learns_of_it(client: Client, tokens: Tokens, services: Services) -> None:
    a_node(services)
    ann = tokens.header(Role.SUBMITTER, "ann")
    token = lent(client, ann)["token"]
    assert client.post(f"/leases/{token}/revoke", headers=ann).status_code == 403
    answer = client.post(f"/leases/{token}/revoke", headers=tokens.header(Role.OPERATOR, "eve"))
    assert answer.json()["status"] == "revoked"
    assert client.post(f"/leases/{token}/heartbeat", headers=ann).status_code == 410


def test_nodes_report_gpus_and_people_clear_them(client: Client, tokens: Tokens, clock: MovingClock) -> None:
    operator, viewer = tokens.header(Role.OPERATOR, "eve"), tokens.header(Role.VIEWER, "vic")
    told = client.post("/nodes/n1/gpus", json={"gpus": [device(0), device(1)]}, headers=operator)
    assert told.json() == {"taken": ["GPU-n1-0", "GPU-n1-1"]}
    assert client.post("/nodes/n1/gpus", json={"gpus": []}, headers=viewer).status_code == 403
    token = lent(client, operator)["token"]
    client.post(f"/leases/{token}/release", headers=operator)
    clock.advance(timedelta(seconds=11))
    client.post("/nodes/n1/gpus", json={"gpus": [device(0, used_mb=8000)]}, headers=operator)
    (sick, _) = client.get("/gpus", headers=viewer).json()["gpus"]
    assert "8000 MB" in sick["quarantine_reason"]
    cleared = client.post("/gpus/GPU-n1-0/clear", headers=operator)
    assert (cleared.json()["quarantined_at"], cleared.json()["outside_mb"]) == (None, 8000)
    assert client.post("/gpus/none/clear", headers=operator).status_code == 404


def test_off_is_409_with_a_clear_sentence(client: Client, tokens: Tokens, services: Services) -> None:
    object.__setattr__(services, "leasing", LeasePolicy(mode=LeaseMode.OFF))
    answer = client.post("/leases", json=body(), headers=tokens.header(Role.ADMIN))
    assert answer.status_code == 409 and "LEASE_MODE" in answer.json()["detail"]


class Callers:
    """Several at once on one app."""

    def __init__(self, app: FastAPI, header: dict[str, str]) -> None:
        self._app, self._header = app, header

    async def __aenter__(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url=HERE, headers=self._header, timeout=PATIENCE)
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()


async def until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not fact():  # noqa: ASYNC110  (what is waited for happens in a thread)
            await asyncio.sleep(0.005)


def test_who_waits_is_served_when_something_is_free(app: FastAPI, tokens: Tokens, services: Services) -> None:
    a_node(services)

    async def scene() -> None:
        async with Callers(app, tokens.header(Role.OPERATOR, "eve")) as client:
            first = (await client.post("/leases", json=body(20_000))).json()
            waiting = asyncio.create_task(client.post("/leases", json=body(20_000, wait_seconds=30)))
            await until(lambda: app.state.server.leases.waiting == 1)
            await client.post(f"/leases/{first['token']}/release")
            await client.post("/nodes/n1/gpus", json={"gpus": [device()]})
            answer = await waiting
            assert (answer.status_code, answer.json()["lease_seq"]) == (201, 2)

    asyncio.run(scene())


def test_who_waits_in_vain_is_told_why_or_given_a_cpu(app: FastAPI, tokens: Tokens, services: Services) -> None:
    a_node(services)
    a_lease(services, 20_000)

    async def scene() -> None:
        async with Callers(app, tokens.header(Role.OPERATOR, "eve")) as client:
            answer = await client.post("/leases", json=body(20_000, wait_seconds=0.2))
            assert (answer.status_code, answer.json()["reason"]) == (200, "leased")
            answer = await client.post("/leases", json=body(20_000, wait_seconds=0.2, allow_cpu=True))
            assert (answer.status_code, answer.json()["mode"]) == (201, "cpu")
            answer = await client.post("/leases", json=body(TOTAL * 2, wait_seconds=30))
            assert answer.json()["reason"] == "too_large", "it is not waited for"

    asyncio.run(scene())


def test_a_caller_that_hangs_up_leaves_no_lease_behind(app: FastAPI, tokens: Tokens, services: Services) -> None:
    a_node(services)
    first = a_lease(services, 20_000)

    async def scene() -> None:
        async with Callers(app, tokens.header(Role.OPERATOR, "eve")) as client:
            waiting = asyncio.create_task(client.post("/leases", json=body(20_000, wait_seconds=30)))
            line = app.state.server.leases
            await until(lambda: line.waiting == 1)
            waiting.cancel()
            await until(lambda: line.waiting == 0)
            await client.post(f"/leases/{first.token}/release")
            await client.post("/nodes/n1/gpus", json={"gpus": [device()]})
            assert list_leases(services, agent=None, ended=False, after=None, limit=10).leases == ()

    asyncio.run(scene())


def test_l1_many_callers_over_http_get_no_more_than_there_is(
    client: Client, app: FastAPI, tokens: Tokens, services: Services
) -> None:
    a_node(services, gpus=2)
    header = tokens.header(Role.ADMIN)
    client.get("/gpus", headers=header)

    def one(_: int) -> int:
        with Client(app) as mine:
            return mine.post("/leases", json=body(8000), headers=header).status_code

    with ThreadPoolExecutor(6) as many:
        assert sorted(many.map(one, range(12))) == [200] * 6 + [201] * 6
