"""Pools over HTTP, in both spellings; who may, and what is refused."""

from typing import Any

import pytest

from herdsman.access.rules import Role
from herdsman.context import Services
from tests.api.calling import Client
from tests.api.conftest import Tokens
from tests.support.builders import scalar

POOL = "/workers/pool"


@pytest.fixture
def boss(tokens: Tokens) -> dict[str, str]:
    return tokens.header(Role.OPERATOR)


FIRST = {
    "pool_id": "llm",
    "agent": "ann",
    "model": "org/m",
    "adapter": "lora",
    "num_workers": 3,
    "hold_seconds": 60,
    "variant": "fp16",
}
SECOND = {"agent_name": "ann", "model_id": "org/m", "desired_workers": 3, "hold_seconds": 60}


@pytest.mark.parametrize("body", [FIRST, SECOND])
def test_both_spellings_are_answered_with_the_names_of_the_table(
    client: Client, boss: dict[str, str], services: Services, body: dict[str, Any]
) -> None:
    answer = client.post(POOL, json=body, headers=boss)
    assert answer.status_code == 201
    said = answer.json()
    expected = {
        "status": "starting",
        "agent_name": "ann",
        "model_id": "org/m",
        "adapter": body.get("adapter"),
        "variant": body.get("variant"),
        "desired_workers": 3,
        "spawned_workers": 0,
        "hold_seconds": 60,
        "revision": 1,
    }
    assert {name: said[name] for name in expected} == expected
    assert answer.headers["location"] == f"{POOL}/{said['pool_id']}"
    row = "SELECT agent_name FROM worker_pools WHERE pool_id = :name"
    assert scalar(services.database, row, name=said["pool_id"]) == "ann"


def test_a_pool_is_found_listed_changed_and_ended(client: Client, boss: dict[str, str]) -> None:
    client.post(POOL, json=FIRST, headers=boss)
    assert client.post(POOL, json=FIRST, headers=boss).status_code == 200
    assert client.get(f"{POOL}/llm", headers=boss).json()["status"] == "starting"
    client.post(POOL, json={"pool_id": "abc"}, headers=boss)
    page = client.get(POOL, params={"limit": 1}, headers=boss).json()
    assert [each["pool_id"] for each in page["pools"]] == ["abc"]
    rest = client.get(POOL, params={"after": page["next"]}, headers=boss).json()
    assert [each["pool_id"] for each in rest["pools"]] == ["llm"]
    scaled = client.post(f"{POOL}/llm/scale", json={"desired_workers": 5}, headers=boss).json()
    assert scaled["desired_workers"] == 5
    swapped = client.post(f"{POOL}/llm/swap", json={"model_id": "org/n", "adapter": None}, headers=boss).json()
    assert (swapped["revision"], swapped["model_id"], swapped["adapter"], swapped["variant"]) == (
        2,
        "org/n",
        None,
        "fp16",
    )
    beat = client.post(f"{POOL}/llm/heartbeat", headers=boss).json()
    assert beat["last_heartbeat"] is not None
    assert client.post(f"{POOL}/llm/drain", headers=boss).json()["status"] == "draining"
    assert client.delete(f"{POOL}/llm", headers=boss).json()["status"] == "draining"
    assert client.delete(f"{POOL}/llm", params={"force": True}, headers=boss).json()["status"] == "evicted"
    assert client.post(f"{POOL}/abc/evict", headers=boss).json()["status"] == "evicted"


def test_a_schedule_comes_back_as_it_was_written(client: Client, boss: dict[str, str]) -> None:
    window = {
        "days": "mon,tue",
        "from": "08:00",
        "to": "18:30",
        "timezone": "Europe/Berlin",
        "min": 2,
        "max": 4,
    }
    body = {"pool_id": "office", "schedule": [window], "outside": {"min": 0, "max": 1}}
    said = client.post(POOL, json=body, headers=boss).json()
    assert said["schedule"] == [window]
    assert said["outside"] == {"min": 0, "max": 1}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"num_workers": 0}, 422),
        ({"num_workers": 65}, 422),
        ({"desired_workers": -1}, 422),
        ({"hold_seconds": 0}, 422),
        ({"hold_seconds": 7201}, 422),
        ({"hold_seconds": "NaN"}, 422),
        ({"desired_workers": 2, "num_workers": 3}, 422),
        ({"agent": "ann", "agent_name": "bob"}, 422),
        ({"pool_id": "a b"}, 422),
        ({"pool_id": "x" * 200}, 422),
        ({"pool_id": "nul\0"}, 422),
        ({"model": "no spaces please"}, 422),
        ({"min_workers": 3, "max_workers": 2}, 422),
        ({"wokers": 3}, 422),
        ({"max_lifetime_seconds": 1e300}, 422),
        ({"schedule": [{"from": "08:00", "to": "25:00"}]}, 422),
        ({"schedule": [{"days": "someday", "from": "08:00", "to": "18:00"}]}, 422),
        ({"schedule": [{"from": "08:00", "to": "18:00", "timezone": "Mars/Olympus"}]}, 422),
        ({"schedule": [{"from": "08:00", "to": "18:00", "min": 4, "max": 1}]}, 422),
        ({"pool_id": "default"}, 409),
        ({"pool_id": "there", "model": "other"}, 409),
    ],
)
def test_what_cannot_be_kept_is_refused_with_words(
    client: Client, boss: dict[str, str], body: dict[str, Any], status: int
) -> None:
    client.post(POOL, json={"pool_id": "there", "model": "org/m"}, headers=boss)
    answer = client.post(POOL, json=body, headers=boss)
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]


def test_pools_that_are_not_there_or_closed_are_refused(client: Client, boss: dict[str, str]) -> None:
    verbs = {"heartbeat": None, "drain": None, "evict": None, "swap": {"model_id": "m"}}
    for verb, body in {**verbs, "scale": {"desired_workers": 1}}.items():
        assert client.post(f"{POOL}/none/{verb}", json=body, headers=boss).status_code == 404
    assert client.get(f"{POOL}/none", headers=boss).status_code == 404
    client.post(POOL, json={"pool_id": "llm"}, headers=boss)
    client.post(f"{POOL}/llm/drain", headers=boss)
    for verb, body in {"heartbeat": None, "swap": {"model_id": "m"}, "scale": {"desired_workers": 1}}.items():
        answer = client.post(f"{POOL}/llm/{verb}", json=body, headers=boss)
        assert answer.status_code == 409
        assert "herdsman pool create" in answer.json()["detail"]
    assert client.post(f"{POOL}/llm/swap", json={}, headers=boss).status_code == 422


def test_a_job_for_a_closed_pool_is_refused_and_the_next_step_is_named(client: Client, boss: dict[str, str]) -> None:
    job = {"type": "demo", "pool": "llm"}
    assert client.post("/jobs/submit", json=job, headers=boss).status_code == 201, "it may still come (J1)"
    client.post(POOL, json={"pool_id": "llm"}, headers=boss)
    assert client.post("/jobs/submit", json=job, headers=boss).status_code == 201
    client.post(f"{POOL}/llm/drain", headers=boss)
    answer = client.post("/jobs/submit", json=job, headers=boss)
    assert answer.status_code == 409
    assert "draining" in answer.json()["detail"]


def test_viewers_look_and_only_operators_change(client: Client, tokens: Tokens) -> None:
    viewer, submitter = tokens.header(Role.VIEWER), tokens.header(Role.SUBMITTER)
    assert client.get(POOL, headers=viewer).status_code == 200
    assert client.post(POOL, json={}, headers=viewer).status_code == 403
    assert client.get(POOL, headers=submitter).status_code == 403
