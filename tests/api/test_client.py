"""The client and the worker's queue against the real server, on a real port."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from herdsman.access.rules import Role
from herdsman.client import AsyncClient, Client, JobCancelled, JobFailed
from herdsman.client.queue import HttpQueue, register
from herdsman.context import Services
from herdsman.errors import Conflict, Forbidden, InvalidRequest, NotFound, StaleWrite, Unauthenticated
from herdsman.fleet import commands as fleet_commands
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import ClaimKey, Failure, FailureClass
from herdsman.jobs.protocol import ClaimRequest, Done, Failed, GivenBack, LogLines, Progress, WorkerHeartbeat
from herdsman.server.http_server import ApiServer
from herdsman.states import JobStatus, Reason, WorkerStatus
from herdsman.testing.clocks import ManualClock
from tests.api.conftest import Tokens

PATIENCE = 30


@pytest.fixture
def people(api_server: ApiServer, tokens: Tokens) -> Iterator[Client]:
    with Client(api_server.url, tokens.of(Role.ADMIN, "boss").secret) as client:
        yield client


@pytest.fixture
def queue(api_server: ApiServer, tokens: Tokens) -> Iterator[HttpQueue]:
    boot = tokens.of(Role.BOOTSTRAP, "w1").secret
    queue, _ = register(api_server.url, boot, WorkerId("w1"), incarnation="first-life")
    yield queue
    queue.close()


def test_a_job_from_its_submission_to_its_result(people: Client, queue: HttpQueue) -> None:
    job = people.submit("image", {"n": 20}, tags=["a"], timeout=60)
    (claim,) = queue.claim(ClaimRequest(types=("image",)))
    assert (claim.payload, claim.timeout) == ({"n": 20}, timedelta(minutes=1))
    assert queue.start([claim.key]) == {}
    heartbeat = WorkerHeartbeat(
        keys=(claim.key,),
        progress={claim.key: Progress(done=0.5, note="half")},
        logs={claim.key: LogLines(first=0, lines=("one", "two"))},
    )
    assert not queue.beat(heartbeat).lost
    assert (job.look().status, job.look().progress) == ("running", 0.5)
    queue.put_checkpoint(claim.key, {"step": 1})
    assert queue.get_checkpoint(claim.key) == {"step": 1}
    done = queue.finish([Done(claim.key, {"n": 21})], ClaimRequest())
    assert [told.status for told in done.told] == [JobStatus.DONE]
    assert job.result(timeout=PATIENCE) == {"n": 21}
    assert [str(line) for line in job.logs(follow=True)] == ["one", "two"]
    assert [attempt.outcome for attempt in job.attempts()] == ["done"]
    assert [event.to_status for event in job.events()] == ["pending", "claimed", "running", "done"]
    assert [each.job_id for each in people.jobs(status="done", tag="a", type="image")] == [job.id]
    assert [each.worker_id for each in people.workers()] == ["w1"]


def test_a_waiting_client_and_a_waiting_worker_meet(people: Client, queue: HttpQueue) -> None:
    def work() -> None:
        for claim in queue.claim(ClaimRequest(begin=True), timedelta(seconds=PATIENCE)):
            queue.finish([Done(claim.key, "hello")])

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert people.submit("image").result(timeout=PATIENCE) == "hello"
    finally:
        worker.join(PATIENCE)


def test_a_failed_job_and_a_cancelled_one_say_so(people: Client, queue: HttpQueue) -> None:
    wrong = people.submit("image")
    (claim,) = queue.claim(ClaimRequest(begin=True))
    queue.finish([Failed(claim.key, Failure(kind=FailureClass.USER_ERROR, error="no prompt"))])
    with pytest.raises(JobFailed, match=r"after 1 attempt \(user_error\): no prompt"):
        wrong.result(timeout=PATIENCE)
    wrong.retry({"prompt": "a herd"})
    (claim,) = queue.claim(ClaimRequest(begin=True))
    assert claim.payload == {"prompt": "a herd"}
    assert wrong.cancel() == "running"
    assert queue.beat(WorkerHeartbeat(keys=(claim.key,))).cancel == {claim.key}
    queue.finish([GivenBack(claim.key, "cancelled")])
    with pytest.raises(JobCancelled):
        wrong.result(timeout=PATIENCE)


def test_an_unfinished_job_times_out_by_name(people: Client) -> None:
    job = people.submit("image")
    with pytest.raises(TimeoutError, match=f"job {job.id} is still pending"):
        job.result(timeout=0.2)


def test_refusals_are_the_same_errors_on_both_sides(people: Client, api_server: ApiServer, tokens: Tokens) -> None:
    people.submit("image", {"n": 1}, job_id="mine")
    assert not people.submit("image", {"n": 1}, job_id="mine").created
    with pytest.raises(Conflict):
        people.submit("image", {"n": 2}, job_id="mine")
    with pytest.raises(NotFound):
        people.job("nobody").look()
    with pytest.raises(InvalidRequest, match="priority"):
        people.submit("image", priority=10**9)
    with Client(api_server.url, "hm_admin_wrong", patience=0) as stranger, pytest.raises(Unauthenticated):
        stranger.job("mine").look()
    viewer = Client(api_server.url, tokens.of(Role.VIEWER, "eve").secret)
    with viewer, pytest.raises(Forbidden):
        viewer.submit("image")


def test_many_jobs_and_many_pages(people: Client) -> None:
    handles = people.submit_many("image", range(450))
    assert {each.job_id for each in people.jobs(status="pending")} == {each.id for each in handles}


def test_a_stale_claim_is_told_per_job_and_a_dead_worker_is_sent_home(
    people: Client, queue: HttpQueue, services: Services, hands: ManualClock
) -> None:
    people.submit("image")
    (claim,) = queue.claim(ClaimRequest(begin=True))
    old = ClaimKey(claim.key.job_id, claim.key.token - 1)
    assert set(queue.beat(WorkerHeartbeat(keys=(old, claim.key))).lost) == {old}
    assert set(queue.start([ClaimKey(JobId("gone"), 1)])) == {ClaimKey(JobId("gone"), 1)}
    (told,) = queue.finish([Done(old, None)]).told
    assert told.stale
    queue.leave()
    fleet_commands.move_worker(services, queue.worker_id, WorkerStatus.TERMINATED, Reason.STOPPED)
    with pytest.raises(StaleWrite, match="is terminated"):
        queue.beat(WorkerHeartbeat())
    hands.advance(timedelta(seconds=5))  # by then its token is dead as well
    with pytest.raises(NotFound, match="the server takes it no longer"):
        queue.beat(WorkerHeartbeat())


def test_events_arrive_as_they_happen(people: Client) -> None:
    people.submit("image", job_id="before")
    stream = people.events(since=0, kind="job")
    assert next(stream).object_id == "before"
    people.submit("image", job_id="after")
    assert next(stream).object_id == "after"


async def _twice(url: str, token: str) -> list[str]:
    async with AsyncClient(url, token) as client:
        first = await client.submit("image", job_id="a")
        second = await client.submit("image", job_id="a")
        await second.cancel()
        return [await first.status(), *[each.job_id async for each in client.jobs()]]


def test_the_async_client_speaks_to_the_same_server(api_server: ApiServer, tokens: Tokens) -> None:
    assert asyncio.run(_twice(api_server.url, tokens.of(Role.ADMIN).secret)) == ["cancelled", "a"]
