"""The control loop and the health of a replica, over HTTP."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest

import herdsman
from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.errors import StoreUnavailable
from herdsman.fleet import routes as fleet_routes
from herdsman.fleet.leader import Leadership
from herdsman.fleet.reconcile import LeaderInbox, Reconciler
from herdsman.jobs.commands import submit_job
from herdsman.jobs.model import NewJob
from herdsman.loops.loop_group import LoopHealth
from herdsman.ports import SystemClock
from herdsman.server import readiness as ready
from herdsman.server.state import MOST_FORWARDED, ServerState
from tests.api.calling import Client
from tests.api.conftest import Build, Tokens
from tests.support.apps import an_app
from tests.support.builders import a_job
from tests.support.control_loop import a_harness
from tests.support.databases import MovingClock


@dataclass(frozen=True, slots=True)
class Control:
    reconciler: Reconciler
    loops: LoopHealth = field(default_factory=LoopHealth)

    @property
    def leadership(self) -> Leadership:
        return self.reconciler.leadership


@dataclass(frozen=True, slots=True)
class Replica:
    client: Client
    control: Control
    state: ServerState


@pytest.fixture
def replicas(build: Build, services: Services, clock: MovingClock) -> Iterator[tuple[Replica, Replica]]:
    """One that leads, and one that follows."""
    with a_harness(services, clock) as harness:
        controls = [Control(harness.replica(name)) for name in ("one", "two")]
        for each in controls:
            each.leadership.campaign()
        states = [build(control=each) for each in controls]
        with Client(an_app(states[0])) as one, Client(an_app(states[1])) as two:
            yield Replica(one, controls[0], states[0]), Replica(two, controls[1], states[1])


@pytest.fixture
def operator(tokens: Tokens) -> dict[str, str]:
    return tokens.header(Role.OPERATOR)


@pytest.mark.parametrize("path", ["/control/reconcile", "/control/cycle"])
def test_the_leader_acts_now_and_says_what_it_did(
    replicas: tuple[Replica, Replica], operator: dict[str, str], services: Services, path: str
) -> None:
    a_job(services)
    answer = replicas[0].client.post(path, headers=operator)
    assert answer.status_code == 200
    told = answer.json()
    assert told["complete"] is True
    assert told["actions"]["workers_spawned"] >= 1
    assert any(step["action"] == "SpawnWorker" for step in told["steps"])


@contextmanager
def listening(services: Services, replica: Replica) -> Generator[None]:
    loop = LeaderInbox(services, replica.control.reconciler, SystemClock()).loop()
    thread = Thread(target=loop.run)
    thread.start()
    try:
        yield
    finally:
        loop.stop()
        thread.join()


@pytest.mark.parametrize("path", ["/control/reconcile", "/control/cycle"])
def test_a_follower_has_the_leader_act_and_brings_back_what_it_did(
    replicas: tuple[Replica, Replica], operator: dict[str, str], services: Services, path: str
) -> None:
    a_job(services)
    with listening(services, replicas[0]):
        answer = replicas[1].client.post(path, headers=operator)
    told = answer.json()
    assert (answer.status_code, told["forwarded"], told["complete"]) == (200, True, True)
    assert told["actions"]["workers_spawned"] >= 1
    assert replicas[0].client.post(path, headers=operator).json()["forwarded"] is False


def test_a_leader_that_does_not_answer_is_not_waited_for_for_ever(
    replicas: tuple[Replica, Replica],
    operator: dict[str, str],
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_routes, "PATIENCE", timedelta(seconds=0.2))
    answer = replicas[1].client.post("/control/reconcile", headers=operator)
    assert (answer.status_code, answer.json()["code"]) == (503, "no-leader")
    assert "one leads" in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) > 0
    assert services.database.read(lambda tx: tx.scalar("SELECT COUNT(*) FROM workers")) == 0


def test_few_wait_for_the_leader_at_a_time(replicas: tuple[Replica, Replica], operator: dict[str, str]) -> None:
    """X9: each of them holds a thread."""
    for _ in range(MOST_FORWARDED):
        assert replicas[1].state.forwarding.acquire(blocking=False)
    answer = replicas[1].client.post("/control/cycle", headers=operator)
    assert (answer.status_code, "retry-after" in answer.headers) == (429, True)


def test_a_replica_without_a_control_loop_says_so(client: Client, operator: dict[str, str]) -> None:
    answer = client.post("/control/cycle", headers=operator)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:herdsman:not-leader")
    assert "nobody leads" in answer.json()["detail"]


def test_everybody_knows_who_leads(replicas: tuple[Replica, Replica], operator: dict[str, str]) -> None:
    seen = [replica.client.get("/leader", headers=operator).json() for replica in replicas]
    assert [each["mine"] for each in seen] == [True, False]
    assert {(each["holder"], each["epoch"], each["leads"]) for each in seen} == {("one", 1, True)}
    replicas[0].control.leadership.resign()
    assert replicas[1].client.get("/leader", headers=operator).json()["leads"] is False


def test_before_the_first_leader_there_is_none(client: Client, operator: dict[str, str]) -> None:
    assert client.get("/leader", headers=operator).json()["holder"] is None


def test_liveness_is_open_and_constant(client: Client) -> None:
    answer = client.get("/health/live")
    assert (answer.status_code, answer.json()) == (200, {"status": "healthy"})
    assert answer.headers["content-type"] == "application/json"


def test_a_replica_that_can_work_is_ready(client: Client, operator: dict[str, str]) -> None:
    answer = client.get("/health/ready", headers=operator)
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "healthy",
        "checks": {"loops": "ok", "database": "ok", "writes": "ok"},
    }


def unready(client: Client, who: dict[str, str]) -> dict[str, str]:
    answer = client.get("/health/ready", headers=who)
    assert (answer.status_code, answer.json()["status"]) == (503, "unhealthy")
    return answer.json()["checks"]


def test_a_replica_whose_loops_end_is_not_ready(client: Client, operator: dict[str, str], state: ServerState) -> None:
    state.stopping.set()
    assert unready(client, operator)["loops"] == "the server stops"
    assert client.get("/health/live").status_code == 200


def test_without_its_database_a_replica_is_not_ready(
    client: Client, operator: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.get("/jobs", headers=operator)  # the token is known from here on

    def away(_self: Database, _work: Any) -> Any:
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(Database, "read", away)
    assert unready(client, operator)["database"].startswith("the database cannot be used right now")


def test_a_database_that_does_not_answer_is_not_waited_for(
    client: Client, operator: dict[str, str], monkeypatch: pytest.MonkeyPatch, services: Services
) -> None:
    monkeypatch.setattr(ready, "PATIENCE_S", 0.05)
    with services.database.alone():  # on SQLite nobody else gets to look at the schema meanwhile
        assert "did not answer" in unready(client, operator)["database"]


def test_a_schema_that_is_not_ours_is_not_ready(client: Client, operator: dict[str, str], services: Services) -> None:
    services.database.transact(lambda tx: tx.connection.exec_driver_sql("DROP VIEW orchestrator_status"))
    assert "herdsman db upgrade" in unready(client, operator)["database"]


def test_the_health_page_has_the_numbers(client: Client, operator: dict[str, str], services: Services) -> None:
    submit_job(services, NewJob(type="demo"))
    found = client.get("/health", headers=operator).json()
    assert (found["status"], found["version"], found["database"]) == (
        "healthy",
        herdsman.__version__,
        "SQLite",
    )
    assert (found["jobs"], found["leads"]) == ({"pending": 1}, False)
