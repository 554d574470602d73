"""The Python client, and the commands through it, look at the real server, on a real port."""

import asyncio
from collections.abc import Iterator

import pytest

from herdsman.access.rules import Role
from herdsman.cli.explain import find
from herdsman.client import AsyncClient, Client, calls
from herdsman.context import Services
from herdsman.errors import Forbidden, InvalidRequest, NotFound
from herdsman.ids import JobId
from herdsman.jobs.commands import find_job
from herdsman.jobs.wire import RequeueIn
from herdsman.jobs.worker_commands import fail_job
from herdsman.server.http_server import ApiServer
from herdsman.states import JobStatus
from tests.api.conftest import Tokens
from tests.support.builders import HOPELESS, a_claim, a_job, a_worker
from tests.support.control_loop import a_harness
from tests.support.databases import MovingClock


@pytest.fixture
def client(api_server: ApiServer, tokens: Tokens) -> Iterator[Client]:
    with Client(api_server.url, tokens.of(Role.ADMIN, "boss").secret) as opened:
        yield opened


def test_a_client_looks_at_everything(api_server: ApiServer, tokens: Tokens, services: Services) -> None:
    job = a_job(services, type="image")
    with Client(api_server.url, tokens.of(Role.VIEWER, "vic").secret) as client:
        assert client.overview().oldest_job == job
        assert client.why("job", job).status == "pending"
        assert client.eta(job).position == 1
        assert client.decisions(limit=5, acted=True).cycles == ()
        assert client.failures(since_hours=1).groups == ()
        assert client.cost(days=2).days == 2
        with pytest.raises(NotFound):
            client.eta("nobody")


def test_an_async_client_looks_at_everything(api_server: ApiServer, tokens: Tokens, services: Services) -> None:
    job = a_job(services, type="image")
    secret = tokens.of(Role.VIEWER, "vic").secret

    async def look() -> None:
        async with AsyncClient(api_server.url, secret) as client:
            assert (await client.overview()).oldest_job == job
            assert (await client.why("job", job)).status == "pending"
            assert (await client.eta(job)).position == 1
            assert (await client.decisions(pool="default")).cycles == ()
            assert (await client.failures()).groups == ()
            assert (await client.cost()).days == 7

    asyncio.run(look())


def test_every_call_looks_at_the_same(client: Client, services: Services, clock: MovingClock) -> None:
    claim = a_claim(services, "w1", type="image")
    waiting = a_job(services, type="image")
    assert client.send(calls.overview()).oldest_job == waiting
    (worker,) = client.send(calls.fleet()).workers
    assert [each.job_id for each in worker.jobs] == [claim.key.job_id]
    assert client.send(calls.why("worker", "w1")).status == "active"
    assert client.send(calls.eta(waiting)).position == 1
    assert [each.what for each in client.send(calls.timeline(waiting)).segments] == ["queue"]
    assert "tokens" in client.send(calls.me()).can
    assert client.send(calls.cost(1)).total_usd == 0
    with a_harness(services, clock) as harness:
        harness.cycle(harness.replica())
    (row,) = client.send(calls.decisions(limit=10)).cycles
    assert client.send(calls.decision(row.cycle)).pools[0].pool == "default"


def test_calls_change_many_at_once(client: Client, services: Services) -> None:
    claim = a_claim(services, "w1")
    fail_job(services, claim.key, HOPELESS)
    waiting = a_job(services)
    done = client.send(calls.cancel_many([waiting, "nobody"]))
    assert [each.status for each in done.jobs] == ["cancelled", None]
    assert client.send(calls.retry_many([waiting])).changed == 1
    (group,) = client.send(calls.failures(1)).groups
    assert client.send(calls.requeue(RequeueIn(key=group.key))).changed == 1
    assert find_job(services, claim.key.job_id).status is JobStatus.PENDING
    assert (
        client.send(calls.drain_worker("w1")).already,
        client.send(calls.drain_worker("w1")).already,
    ) == (False, True)
    with pytest.raises(InvalidRequest):
        client.send(calls.cancel_many([str(number) for number in range(501)]))


def test_why_finds_out_what_an_id_names(client: Client, services: Services) -> None:
    a_job(services, job_id=JobId("the-first-job"))
    a_worker(services, "the-only-worker")
    assert find(client, "the-first-job").kind == "job"
    assert find(client, "the-only-worker").kind == "worker"
    assert find(client, "default").kind == "pool"
    assert find(client, "the-f").id == "the-first-job"
    assert find(client, "worker").id == "the-only-worker"
    with pytest.raises(NotFound, match="no job, worker or pool 'nobody'"):
        find(client, "nobody")


def test_why_of_a_submitter_finds_its_jobs_and_nothing_else(
    api_server: ApiServer, tokens: Tokens, services: Services
) -> None:
    a_worker(services, "w1")
    mine, theirs = a_job(services, agent="ann"), a_job(services, agent="bob")
    secret = tokens.of(Role.SUBMITTER, "ann").secret
    with Client(api_server.url, secret) as client:
        assert find(client, mine).status == "pending"
        for other in (theirs, "w1", "default"):
            with pytest.raises(NotFound, match="no job, worker or pool"):
                find(client, other)
        with pytest.raises(Forbidden):
            client.send(calls.why("worker", "w1"))
