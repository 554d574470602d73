"""A herd in one process: the client is the real one, the rules are the real ones, and time is played."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from herdsman import JobContext, UserError
from herdsman.client import JobCancelled, JobFailed
from herdsman.errors import Conflict, InvalidRequest, NotFound, TooLarge
from herdsman.jobs.model import Failure, FailureClass
from herdsman.testing.local_herd import LocalHerd


@pytest.fixture
def herd() -> Iterator[LocalHerd]:
    with LocalHerd() as herd:
        herd.handle("double", lambda job: job.payload["n"] * 2)
        yield herd


class Flaky:
    """Fails so many times, then works."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.attempts: list[int] = []

    def __call__(self, job: JobContext) -> object:
        self.attempts.append(job.attempt)
        self.left -= 1
        if self.left >= 0:
            raise RuntimeError("not yet")
        return "at last"


def test_a_result_is_there_without_waiting(herd: LocalHerd) -> None:
    assert herd.client.submit("double", {"n": 21}).result() == 42


def test_nothing_runs_until_somebody_asks(herd: LocalHerd) -> None:
    job = herd.client.submit("double", {"n": 1})
    assert job.status() == "pending"
    assert herd.run_all() == 1
    assert job.status() == "done"
    assert herd.run_all() == 0


def test_many_at_once_keep_their_order(herd: LocalHerd) -> None:
    results = herd.client.map("double", ({"n": each} for each in range(250)), window=20)
    assert list(results) == [each * 2 for each in range(250)]


def test_a_failed_attempt_waits_for_its_retry_time_and_never_before(herd: LocalHerd) -> None:
    flaky = Flaky(1)
    herd.handle("flaky", flaky)
    job = herd.client.submit("flaky", retry_base=60)
    herd.run_all()
    assert job.status() == "failed"
    assert herd.advance(59) == 0
    assert herd.advance(60) == 1
    assert (job.status(), flaky.attempts) == ("done", [1, 2])


def test_a_waiting_client_lets_the_time_of_retries_pass(herd: LocalHerd) -> None:
    herd.handle("flaky", Flaky(2))
    job = herd.client.submit("flaky", retry_base=300, retry_cap=3600)
    assert job.result(timeout=7200) == "at last"
    assert herd.monotonic() > 600


def test_a_job_that_goes_on_failing_ends_as_a_dead_letter(herd: LocalHerd) -> None:
    herd.handle("flaky", Flaky(100))
    job = herd.client.submit("flaky", max_attempts=2)
    with pytest.raises(JobFailed, match="after 2 attempts") as raised:
        job.result()
    assert raised.value.failure_class == "job_error"
    assert "RuntimeError: not yet" in (raised.value.error or "")
    assert [(each.attempt, each.outcome) for each in job.attempts()] == [(1, "failed"), (2, "dead_letter")]


def test_the_handlers_word_decides_the_class_of_a_failure(herd: LocalHerd) -> None:
    def wrong(_: JobContext) -> object:
        raise UserError("no prompt")

    def full(_: JobContext) -> object:
        raise MemoryError

    herd.handle("wrong", wrong)
    herd.handle("full", full)
    with pytest.raises(JobFailed, match=r"after 1 attempt \(user_error\): no prompt"):
        herd.client.submit("wrong").result()
    with pytest.raises(JobFailed, match=r"after 2 attempts \(out_of_memory\)"):
        herd.client.submit("full").result()


def test_a_result_that_is_no_json_fails_the_job(herd: LocalHerd) -> None:
    herd.handle("odd", lambda _: {1, 2})
    with pytest.raises(JobFailed, match="its result was refused"):
        herd.client.submit("odd").result()


def test_submitting_twice_is_one_job_and_another_body_is_refused(herd: LocalHerd) -> None:
    first = herd.client.submit("double", {"n": 1}, job_id="mine")
    again = herd.client.submit("double", {"n": 1}, job_id="mine")
    assert (first.created, again.created) == (True, False)
    with pytest.raises(Conflict):
        herd.client.submit("double", {"n": 2}, job_id="mine")
    keyed = herd.client.submit("double", {"n": 1}, idempotency_key="k")
    assert herd.client.submit("double", {"n": 1}, idempotency_key="k").id == keyed.id
    assert len(list(herd.client.jobs())) == 2


def test_the_limits_are_the_real_ones(herd: LocalHerd) -> None:
    with pytest.raises(InvalidRequest, match="priority"):
        herd.client.submit("double", priority=10**9)
    with pytest.raises(TooLarge):
        herd.client.submit("double", "x" * 2_000_000)
    with pytest.raises(NotFound):
        herd.client.job("nobody").look()


def test_a_waiting_job_is_cancelled_at_once_and_never_runs(herd: LocalHerd) -> None:
    job = herd.client.submit("double", {"n": 1})
    assert job.cancel() == "cancelled"
    assert herd.run_all() == 0
    with pytest.raises(JobCancelled):
        job.result()


@pytest.mark.parametrize("listens", [True, False])
def test_a_running_job_that_is_cancelled_is_never_done(herd: LocalHerd, *, listens: bool) -> None:
    """J7, whether the handler stops or brings its result all the same."""

    def handler(job: JobContext) -> object:
        assert herd.client.cancel(job.job_id) == "running"
        assert job.cancelled
        if listens:
            job.raise_if_cancelled()
        return "too late"

    herd.handle("long", handler)
    with pytest.raises(JobCancelled):
        herd.client.submit("long").result()


def test_a_job_that_has_ended_runs_again_with_another_payload(herd: LocalHerd) -> None:
    job = herd.client.submit("double", {"n": 1})
    with pytest.raises(InvalidRequest, match="only a job that has ended"):
        job.retry()
    assert job.result() == 2
    assert herd.client.retry(job.id, {"n": 5}).result() == 10
    assert [each.claim_token for each in job.attempts()] == [1, 3]


def test_delays_and_priorities_count(herd: LocalHerd) -> None:
    ran: list[str] = []
    herd.handle("note", lambda job: ran.append(job.payload))
    herd.client.submit("note", "later", delay=timedelta(hours=1))
    herd.client.submit("note", "plain")
    herd.client.submit("note", "first", priority=100)
    herd.run_all()
    assert ran == ["first", "plain"]
    herd.advance(3601)
    assert ran == ["first", "plain", "later"]


def test_progress_logs_checkpoints_and_workspace_are_there(herd: LocalHerd) -> None:
    places: list[Path] = []

    def handler(job: JobContext) -> object:
        places.append(job.workspace)
        (job.workspace / "file").write_text("x")
        job.log("hello\nthere")
        job.progress(0.5, "half")
        saved = job.checkpoint()
        job.save_checkpoint((saved or 0) + 1)
        if saved is None:
            raise RuntimeError("once more")
        return saved

    herd.handle("full", handler)
    job = herd.client.submit("full")
    herd.run_all()
    assert (job.look().progress, job.look().progress_note) == (0.5, "half")
    assert job.result() == 1
    assert [(line.claim_token, line.number, line.text) for line in job.logs(follow=True)] == [
        (1, 0, "hello"),
        (1, 1, "there"),
        (2, 0, "hello"),
        (2, 1, "there"),
    ]
    assert not any(place.exists() for place in places)


def test_a_batch_gets_many_jobs_and_each_ends_by_itself(herd: LocalHerd) -> None:
    sizes: list[int] = []

    def handler(jobs: list[JobContext]) -> list[object]:
        sizes.append(len(jobs))
        bad = Failure(kind=FailureClass.USER_ERROR, error="odd")
        return [bad if job.payload % 2 else job.payload for job in jobs]

    herd.handle("many", handler, batch=4)
    results = list(herd.client.map("many", range(6), return_exceptions=True))
    assert sizes == [4, 2]
    assert [each for each in results if not isinstance(each, JobFailed)] == [0, 2, 4]


def test_what_happened_can_be_read(herd: LocalHerd) -> None:
    job = herd.client.submit("double", {"n": 1}, tags=["a"])
    job.result()
    assert [each.to_status for each in job.events()] == ["pending", "claimed", "running", "done"]
    assert [each.object_id for each in herd.client.events(job_id=job.id)] == [job.id] * 4
    assert [each.job_id for each in herd.client.jobs(status="done", tag="a")] == [job.id]
    assert list(herd.client.jobs(status="pending")) == []
    assert list(herd.client.workers()) == []


def test_long_lists_come_page_by_page(herd: LocalHerd) -> None:
    handles = herd.client.submit_many("double", [{"n": 0}] * 450)
    assert [each.job_id for each in herd.client.jobs()] == [each.id for each in reversed(handles)]


def test_a_handler_may_wait_for_a_job_of_its_own(herd: LocalHerd) -> None:
    herd.handle("outer", lambda job: herd.client.submit("double", job.payload).result() + 1)
    assert herd.client.submit("outer", {"n": 2}).result() == 5


def test_a_job_that_nobody_can_run_waits_and_a_wait_for_it_ends(herd: LocalHerd) -> None:
    job = herd.client.submit("unknown")
    with pytest.raises(TimeoutError, match="still pending"):
        job.result(timeout=60)
    with pytest.raises(RuntimeError, match="there are handlers for double"):
        job.result()


def test_the_async_client_works_on_the_same_herd(herd: LocalHerd) -> None:
    async def go() -> object:
        job = await herd.async_client.submit("double", {"n": 3})
        return await job.result()

    assert asyncio.run(go()) == 6
