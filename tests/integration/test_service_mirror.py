"""With a real Redis: where a job is on an external service can be seen there as soon as it was said."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from herdsman.access.authenticator import Keyring
from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.jobs.model import JobPolicy
from herdsman.server.state import ServerState, build_state
from herdsman.server.wiring import new_job_id
from tests.api.calling import Client
from tests.api.conftest import Tokens
from tests.chaos.waiting import waited_for
from tests.support.apps import an_app
from tests.support.builders import a_job, claimed
from tests.support.databases import SqliteFiles, opened
from tests.support.redis_streams import Replica, client, replica
from tests.support.servers.redis import RedisServer

FIELDS = {"service_job_id", "service_status", "service_submitted_at", "last_service_check"}


@pytest.fixture
def services(sqlite: SqliteFiles) -> Iterator[Services]:
    with opened(sqlite.fresh()) as database:
        yield Services(database, JobPolicy(), new_job_id)


@pytest.fixture
def one(services: Services) -> Iterator[Replica]:
    with RedisServer() as server:
        client(server).flushall()
        with replica(server, services) as made:
            made.bus.start()
            yield made
            made.bus.stop()


@pytest.fixture
def state(one: Replica, services: Services) -> Iterator[ServerState]:
    built = build_state(services, Keyring(pepper=b"p" * 32), open_bus=lambda _: one.bus)
    yield built
    built.stop_waiting()


def test_the_hash_of_a_job_shows_its_place_right_after_the_mark(state: ServerState, one: Replica) -> None:
    issued = Tokens(state.services, state.keyring).of(Role.WORKER, "w1")
    who = {"authorization": f"Bearer {issued.secret}"}
    job_id = a_job(state.services)
    assert issued.token.worker_id is not None
    token = claimed(state.services, issued.token.worker_id).key.token
    with Client(an_app(state)) as caller:

        def shown_after(status: str) -> dict[str, str]:
            body = {"token": token, "external_id": "p-1", "status": status}
            assert caller.put(f"/jobs/{job_id}/service", json=body, headers=who).status_code == 204
            waited_for(lambda: one.raw.hget(f"job:{job_id}", "service_status") == status or None)
            found: dict[str, str] = one.raw.hgetall(f"job:{job_id}")
            return found

        first = shown_after("submitted")
        assert first.keys() >= FIELDS
        assert (first["service_job_id"], first["last_service_check"]) == ("p-1", "")
        assert datetime.fromisoformat(first["service_submitted_at"]).utcoffset() == timedelta(0)
        second = shown_after("checked")
        assert second["service_submitted_at"] == first["service_submitted_at"]
        assert datetime.fromisoformat(second["last_service_check"]) >= datetime.fromisoformat(
            second["service_submitted_at"]
        )
        refused = caller.put(
            f"/jobs/{job_id}/service",
            json={"token": token + 1, "external_id": "other", "status": "submitted"},
            headers=who,
        )
        assert refused.status_code == 409
        last = shown_after("attached")
        assert last["service_job_id"] == "p-1"
