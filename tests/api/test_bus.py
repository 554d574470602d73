"""What the API shows of the streams, and what it tells them."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from herdsman.access.rules import Role
from herdsman.ids import WorkerId
from herdsman.pools.rules import Serves
from herdsman.redis.streams import BusState, Count, Names, Size
from herdsman.server.state import ServerState
from tests.api.calling import Client
from tests.api.conftest import Build, Tokens
from tests.support.apps import an_app
from tests.support.builders import a_job, claimed


@dataclass
class Bus:
    """Remembers what it is told."""

    state: BusState = field(default_factory=BusState)
    redis: Any = field(default_factory=lambda: SimpleNamespace(names=Names()))
    said: str = "ok"
    told: list[str] = field(default_factory=list[str])
    asked: int = 0

    def announce_jobs(self, news: Any, done: Any) -> None:
        assert len(news) == len(done)
        self.told += [each.job_id for each in done]

    def resync_soon(self) -> None:
        self.asked += 1

    def announce_pool(self, event: str, pool_id: str, serves: Serves, desired_workers: int) -> None:
        self.told.append(f"{event} {pool_id} {serves.model} {desired_workers}")

    def mirror(self, job_id: str, mapping: Any) -> None:
        self.told.append(f"{job_id} {mapping['service_job_id']} {mapping['service_status']}")

    def announce_control(self, event: str, _by: str, scope: str = "all") -> None:
        self.told.append(f"{event} {scope}")


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
def state(build: Build, bus: Bus) -> ServerState:
    def open_bus(_dispatcher: object) -> Bus:
        return bus

    return build(open_bus=open_bus)


def test_what_was_submitted_is_announced_once(client: Client, bus: Bus, tokens: Tokens) -> None:
    """After it was stored."""
    who = tokens.header(Role.ADMIN)
    for _ in range(2):
        client.post("/jobs/submit", json={"type": "demo", "job_id": "one"}, headers=who)
    client.post("/jobs/submit/batch", json={"jobs": [{"type": "demo", "job_id": "two"}]}, headers=who)
    assert bus.told == ["one", "two"]


def test_redis_being_away_makes_nobody_unhealthy(client: Client, bus: Bus, tokens: Tokens) -> None:
    who = tokens.header(Role.ADMIN)
    assert client.get("/health", headers=who).json()["streams"] == "ok"
    bus.said = "degraded, the database is polled: Redis does not answer"
    found = client.get("/health", headers=who)
    assert (found.status_code, found.json()["status"]) == (200, "healthy")
    assert found.json()["streams"].startswith("degraded")
    assert client.get("/health/ready", headers=who).status_code == 200


def test_the_streams_are_measured(client: Client, bus: Bus, tokens: Tokens) -> None:
    bus.state.sizes = {"stream:orchestrator:inference_jobs": Size(7, 5, 3)}
    bus.state.count(Count.RECLAIMED, 2)
    bus.state.failed("listener", "away")
    shown = client.get("/metrics", headers=tokens.header(Role.METRICS)).text
    assert 'herdsman_stream_length{stream="stream:orchestrator:inference_jobs"} 7.0' in shown
    assert 'herdsman_stream_pending{stream="stream:orchestrator:inference_jobs"} 5.0' in shown
    assert 'herdsman_stream_events_total{event="reclaimed"} 2.0' in shown
    assert "herdsman_streams_up 0.0" in shown


def test_without_redis_nothing_is_said_of_it(tokens: Tokens, build: Build) -> None:
    app = an_app(build())
    with Client(app) as client:
        assert client.get("/health", headers=tokens.header(Role.ADMIN)).json()["streams"] == "off"
        assert "herdsman_stream_" not in client.get("/metrics", headers=tokens.header(Role.METRICS)).text


def test_what_becomes_of_a_pool_is_announced(client: Client, bus: Bus, tokens: Tokens) -> None:
    who = tokens.header(Role.ADMIN)
    made = {"pool_id": "llm", "agent": "ann", "model": "org/a", "num_workers": 1}
    client.post("/workers/pool", json=made, headers=who)
    client.post("/workers/pool/llm/scale", json={"desired_workers": 2}, headers=who)
    client.post("/workers/pool/llm/swap", json={"model_id": "org/b"}, headers=who)
    client.post("/workers/pool/llm/drain", headers=who)
    client.post("/control/evict_pool", json={"pool_id": "llm"}, headers=who)
    assert bus.told == [
        "created llm org/a 1",
        "scaled llm org/a 2",
        "swapped llm org/b 2",
        "drained llm org/b 2",
        "evicted llm org/b 2",
    ]


def test_what_is_stopped_is_announced(client: Client, bus: Bus, tokens: Tokens) -> None:
    who = tokens.header(Role.ADMIN)
    client.post("/control/pause", json={"pool": "llm"}, headers=who)
    client.post("/control/resume", json={"pool": "llm"}, headers=who)
    client.post("/control/drain", json={}, headers=who)
    assert bus.told == ["pause pool:llm", "resume pool:llm", "drain all"]


def test_where_a_job_is_on_a_service_is_mirrored_once_it_was_stored(
    client: Client, bus: Bus, tokens: Tokens, state: ServerState
) -> None:
    who = tokens.header(Role.WORKER, "w1")
    job_id = a_job(state.services)
    token = claimed(state.services, WorkerId("w1")).key.token
    body = {"external_id": "p-1", "status": "submitted"}
    path = f"/jobs/{job_id}/service"
    assert client.put(path, json={**body, "token": token + 1}, headers=who).status_code == 409
    assert bus.told == []
    assert client.put(path, json={**body, "token": token}, headers=who).status_code == 204
    assert bus.told == [f"{job_id} p-1 submitted"]
