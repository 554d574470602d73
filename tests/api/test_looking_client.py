"""The Python client and the door of the commands look at the real server, on a real port."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest
from fastapi import FastAPI

from herdsman.cli.api_door import ApiDoor
from herdsman.cli.direct_door import DirectDoor
from herdsman.cli.door import Door
from herdsman.cli.why import find
from herdsman.client import AsyncClient, Client
from herdsman.control.commands import fail_job, find_job
from herdsman.control.services import Services
from herdsman.core.access import Role
from herdsman.core.errors import Forbidden, InvalidRequest, NotFound
from herdsman.core.model import JobId
from herdsman.core.states import JobState
from herdsman.ports import SystemClock
from herdsman.server.http_server import ApiServer, Listening, bind
from herdsman.server.state import ServerState
from herdsman.wire.jobs import RequeueIn
from tests.api.conftest import Tokens
from tests.builders import HOPELESS, a_claim, a_job, a_worker
from tests.databases import MovingClock
from tests.herd import a_herd


@pytest.fixture
def server(app: FastAPI, state: ServerState) -> Iterator[ApiServer]:
    server = ApiServer(app, bind(Listening()), on_stop=state.stopping.set)
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["http", "direct"])
def door(request: pytest.FixtureRequest, services: Services, tokens: Tokens) -> Iterator[Door]:
    """Both ways that the commands have."""
    clock = SystemClock()
    if request.param == "direct":
        yield DirectDoor(services, clock)
        return
    server: ApiServer = request.getfixturevalue("server")
    opened = ApiDoor(server.url, tokens.of(Role.ADMIN, "boss").secret, clock, timedelta(seconds=15))
    yield opened
    opened.close()


def test_a_client_looks_at_everything(server: ApiServer, tokens: Tokens, services: Services) -> None:
    job = a_job(services, type="image")
    with Client(server.url, tokens.of(Role.VIEWER, "vic").secret) as client:
        assert client.overview().oldest_job == job
        assert client.why("job", job).state == "pending"
        assert client.eta(job).position == 1
        assert client.decisions(limit=5, acted=True).cycles == ()
        assert client.failures(since_hours=1).groups == ()
        assert client.cost(days=2).days == 2
        with pytest.raises(NotFound):
            client.eta("nobody")


def test_an_async_client_looks_at_everything(server: ApiServer, tokens: Tokens, services: Services) -> None:
    job = a_job(services, type="image")
    secret = tokens.of(Role.VIEWER, "vic").secret

    async def look() -> None:
        async with AsyncClient(server.url, secret) as client:
            assert (await client.overview()).oldest_job == job
            assert (await client.why("job", job)).state == "pending"
            assert (await client.eta(job)).position == 1
            assert (await client.decisions(pool="default")).cycles == ()
            assert (await client.failures()).groups == ()
            assert (await client.cost()).days == 7

    asyncio.run(look())


def test_both_doors_look_at_the_same(door: Door, services: Services, clock: MovingClock) -> None:
    claim = a_claim(services, "w1", type="image")
    waiting = a_job(services, type="image")
    assert door.overview().oldest_job == waiting
    (worker,) = door.herd().workers
    assert [each.job_id for each in worker.jobs] == [claim.key.job_id]
    assert door.why("worker", "w1").state == "active"
    assert door.eta(waiting).position == 1
    assert [each.what for each in door.timeline(waiting).segments] == ["queue"]
    assert "tokens" in door.me().can
    assert door.cost(1).total_usd == 0
    with a_herd(services, clock) as herd:
        herd.cycle(herd.replica())
    (row,) = door.decisions(limit=10).cycles
    assert door.decision(row.cycle).pools[0].pool == "default"


def test_both_doors_change_many_at_once(door: Door, services: Services) -> None:
    claim = a_claim(services, "w1")
    fail_job(services, claim.key, HOPELESS)
    waiting = a_job(services)
    done = door.cancel_many([waiting, "nobody"])
    assert [each.status for each in done.jobs] == ["cancelled", None]
    assert door.retry_many([waiting]).changed == 1
    (group,) = door.failures(1).groups
    assert door.requeue_failures(RequeueIn(key=group.key)).changed == 1
    assert find_job(services, claim.key.job_id).state is JobState.PENDING
    assert (door.drain_worker("w1").already, door.drain_worker("w1").already) == (False, True)
    with pytest.raises(InvalidRequest):
        door.cancel_many([str(number) for number in range(501)])


def test_why_finds_out_what_an_id_names(door: Door, services: Services) -> None:
    a_job(services, job_id=JobId("the-first-job"))
    a_worker(services, "the-only-worker")
    assert find(door, "the-first-job").kind == "job"
    assert find(door, "the-only-worker").kind == "worker"
    assert find(door, "default").kind == "pool"
    assert find(door, "the-f").id == "the-first-job"
    assert find(door, "worker").id == "the-only-worker"
    with pytest.raises(NotFound, match="no job, worker or pool 'nobody'"):
        find(door, "nobody")


def test_why_of_a_submitter_finds_its_jobs_and_nothing_else(
    server: ApiServer, tokens: Tokens, services: Services
) -> None:
    a_worker(services, "w1")
    mine, theirs = a_job(services, agent="ann"), a_job(services, agent="bob")
    secret = tokens.of(Role.SUBMITTER, "ann").secret
    door = ApiDoor(server.url, secret, SystemClock(), timedelta(seconds=15))
    try:
        assert find(door, mine).state == "pending"
        for other in (theirs, "w1", "default"):
            with pytest.raises(NotFound, match="no job, worker or pool"):
                find(door, other)
        with pytest.raises(Forbidden):
            door.why("worker", "w1")
    finally:
        door.close()
