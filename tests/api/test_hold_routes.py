"""Pausing, draining and safe mode, over HTTP."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from herdsman.access.rules import Role
from herdsman.context import Services
from tests.api.calling import Client
from tests.api.conftest import Build, Tokens
from tests.support.apps import an_app
from tests.support.builders import a_job, a_worker
from tests.support.control_loop import a_harness
from tests.support.databases import MovingClock


@pytest.fixture
def operator(tokens: Tokens) -> dict[str, str]:
    return tokens.header(Role.OPERATOR)


def scopes(client: Client, who: dict[str, str]) -> set[str]:
    return {each["scope"] for each in client.get("/control/holds", headers=who).json()["holds"]}


@pytest.mark.parametrize(
    ("body", "scope"),
    [
        ({}, "all"),
        ({"scope": "all"}, "all"),
        ({"pool": "a"}, "pool:a"),
        ({"scope": "pool:a"}, "pool:a"),
        ({"type": "t"}, "type:t"),
        ({"queue": "t"}, "type:t"),
        ({"scope": "type:t"}, "type:t"),
    ],
)
def test_everything_a_pool_or_a_type_can_be_paused_and_resumed(
    client: Client, operator: dict[str, str], body: dict[str, Any], scope: str
) -> None:
    told = client.post("/control/pause", json={**body, "reason": "a test", "seconds": 60}, headers=operator)
    assert told.status_code == 200
    hold = told.json()
    assert (hold["scope"], hold["kind"], hold["reason"], hold["actor"]) == (
        scope, "pause", "a test", "operator:ann",
    )  # fmt: skip
    assert hold["until"] > hold["since"]
    assert scopes(client, operator) == {scope}
    for resumed in (True, False):
        told = client.post("/control/resume", json=body, headers=operator)
        assert told.json() == {"scope": scope, "resumed": resumed}
    assert scopes(client, operator) == set()


@pytest.mark.parametrize(
    "body",
    [
        {"scope": "world"},
        {"scope": "pool:"},
        {"scope": "pool:a b"},
        {"scope": ""},
        {"pool": "x" * 124},
        {"pool": "a", "type": "t"},
        {"scope": "all", "pool": "a"},
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": 1e12},
        {"reason": "x" * 256},
        {"poool": "a"},
    ],
)
def test_a_pause_of_nothing_is_refused(client: Client, operator: dict[str, str], body: dict[str, Any]) -> None:
    assert client.post("/control/pause", json=body, headers=operator).status_code == 422
    assert scopes(client, operator) == set()


def test_a_worker_that_waits_gets_its_job_at_the_resume(
    client: Client, operator: dict[str, str], tokens: Tokens, services: Services
) -> None:
    worker = tokens.header(Role.WORKER, "w1")
    job_id = a_job(services)
    client.post("/control/pause", json={}, headers=operator)
    assert client.post("/jobs/claim", json={}, headers=worker).json()["claims"] == []
    client.post("/control/resume", json={}, headers=operator)
    (claim,) = client.post("/jobs/claim", json={}, headers=worker).json()["claims"]
    assert claim["job_id"] == job_id


def test_a_drain_is_shown_with_all_that_goes_on(client: Client, operator: dict[str, str], services: Services) -> None:
    a_worker(services)
    told = client.post("/control/drain", json={"reason": "the power goes"}, headers=operator).json()
    assert (told["scope"], told["kind"], told["reason"]) == ("all", "drain", "the power goes")
    seen = client.get("/control/holds", headers=operator).json()
    assert (seen["jobs_held"], seen["workers"]) == (0, {"terminating": 1})


def test_an_evicted_pool_is_over_at_once(client: Client, operator: dict[str, str]) -> None:
    pool = {"pool_id": "p1", "agent": "ann", "model": "m", "num_workers": 1, "hold_seconds": 60}
    assert client.post("/workers/pool", json=pool, headers=operator).is_success
    for _ in range(2):  # may be repeated
        told = client.post("/control/evict_pool", json={"pool_id": "p1"}, headers=operator)
        assert (told.status_code, told.json()["status"]) == (200, "evicted")
    assert client.post("/control/evict_pool", json={"pool_id": "p2"}, headers=operator).status_code == 404


@pytest.fixture
def safe(build: Build) -> Iterator[Client]:
    with Client(an_app(build(safe_mode=True))) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/jobs/submit", {"type": "demo"}),
        ("/jobs/some/cancel", {}),
        ("/control/pause", {}),
        ("/control/reconcile", {}),
        ("/tokens", {"role": "viewer"}),
    ],
)
def test_in_safe_mode_people_only_look(safe: Client, tokens: Tokens, path: str, body: dict[str, Any]) -> None:
    admin = tokens.header(Role.ADMIN)
    answer = safe.post(path, json=body, headers=admin)
    assert (answer.status_code, answer.json()["code"]) == (503, "safe-mode")
    assert "SAFE_MODE" in answer.json()["detail"]
    assert safe.get("/jobs", headers=admin).json()["jobs"] == []


def test_in_safe_mode_workers_go_on(safe: Client, tokens: Tokens, services: Services) -> None:
    worker = tokens.header(Role.WORKER, "w1")
    job_id = a_job(services)
    (claim,) = safe.post("/jobs/claim", json={}, headers=worker).json()["claims"]
    done = safe.post(f"/jobs/{job_id}/complete", json={"token": claim["token"], "result": 1}, headers=worker)
    assert done.is_success
    assert safe.post("/workers/w1/heartbeat", json={}, headers=worker).status_code == 200


@pytest.mark.parametrize("step", ["heartbeat", "release"])
def test_in_safe_mode_who_holds_a_lease_may_keep_and_end_it(safe: Client, tokens: Tokens, step: str) -> None:
    answer = safe.post(f"/leases/nobodys/{step}", json={}, headers=tokens.header(Role.ADMIN))
    assert answer.status_code != 503


def test_in_safe_mode_the_control_loop_only_plans(services: Services, clock: MovingClock) -> None:
    a_job(services)
    with a_harness(services, clock) as harness:
        replica = replace(harness.replica(), only_plans=True)
        replica.leadership.campaign()
        ran = replica.tick()
        assert any(step["action"] == "SpawnWorker" for step in ran.steps())
        assert not any(step["done"] for step in ran.steps())
    assert services.database.read(lambda tx: tx.scalar("SELECT COUNT(*) FROM workers")) == 0
