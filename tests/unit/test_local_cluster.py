"""LocalCluster: the real server in this process, and time that a test moves."""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from herdsman import JobContext, UserError
from herdsman.client import JobCancelled, JobFailed
from herdsman.errors import Conflict, InvalidRequest, NotFound, TooLarge
from herdsman.jobs.model import Failure, FailureClass
from herdsman.testing import LocalCluster
from herdsman.testing import cluster as cluster_module


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        cluster.handle("double", lambda job: job.payload["n"] * 2)
        yield cluster


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


def test_a_result_is_there_without_waiting(cluster: LocalCluster) -> None:
    assert cluster.client.submit("double", {"n": 21}).result() == 42


def test_nothing_runs_until_somebody_asks(cluster: LocalCluster) -> None:
    job = cluster.client.submit("double", {"n": 1})
    assert job.status() == "pending"
    assert cluster.run_all() == 1
    assert job.status() == "done"
    assert cluster.run_all() == 0


def test_many_at_once_keep_their_order(cluster: LocalCluster) -> None:
    results = cluster.client.map("double", ({"n": each} for each in range(100)), window=20)
    assert list(results) == [each * 2 for each in range(100)]


def test_a_failed_attempt_waits_for_its_retry_time_and_never_before(cluster: LocalCluster) -> None:
    flaky = Flaky(1)
    cluster.handle("flaky", flaky)
    job = cluster.client.submit("flaky", retry_base=60)
    cluster.run_all()
    assert job.status() == "failed"
    assert cluster.advance(59) == 0
    assert cluster.advance(60) == 1
    assert (job.status(), flaky.attempts) == ("done", [1, 2])


def test_a_waiting_client_lets_the_time_of_retries_pass(cluster: LocalCluster) -> None:
    cluster.handle("flaky", Flaky(2))
    job = cluster.client.submit("flaky", retry_base=60, retry_cap=600)
    assert job.result(timeout=3600) == "at last"
    assert cluster.monotonic() > 120


def test_a_job_that_goes_on_failing_ends_as_a_dead_letter(cluster: LocalCluster) -> None:
    cluster.handle("flaky", Flaky(100))
    job = cluster.client.submit("flaky", max_attempts=2)
    with pytest.raises(JobFailed, match="after 2 attempts") as raised:
        job.result()
    assert raised.value.failure_class == "job_error"
    assert "RuntimeError: not yet" in (raised.value.error or "")
    assert [(each.attempt, each.outcome) for each in job.attempts()] == [(1, "failed"), (2, "dead_letter")]


def test_the_handlers_word_decides_the_class_of_a_failure(cluster: LocalCluster) -> None:
    def wrong(_: JobContext) -> object:
        raise UserError("no prompt")

    def full(_: JobContext) -> object:
        raise MemoryError

    cluster.handle("wrong", wrong)
    cluster.handle("full", full)
    with pytest.raises(JobFailed, match=r"after 1 attempt \(user_error\): no prompt"):
        cluster.client.submit("wrong").result()
    with pytest.raises(JobFailed, match=r"after 2 attempts \(out_of_memory\)"):
        cluster.client.submit("full").result()


def test_a_result_that_is_no_json_fails_the_job(cluster: LocalCluster) -> None:
    cluster.handle("odd", lambda _: {1, 2})
    with pytest.raises(JobFailed, match="its result was refused"):
        cluster.client.submit("odd").result()


def test_submitting_twice_is_one_job_and_another_body_is_refused(cluster: LocalCluster) -> None:
    first = cluster.client.submit("double", {"n": 1}, job_id="mine")
    again = cluster.client.submit("double", {"n": 1}, job_id="mine")
    assert (first.created, again.created) == (True, False)
    with pytest.raises(Conflict):
        cluster.client.submit("double", {"n": 2}, job_id="mine")
    keyed = cluster.client.submit("double", {"n": 1}, idempotency_key="k")
    assert cluster.client.submit("double", {"n": 1}, idempotency_key="k").id == keyed.id
    assert len(list(cluster.client.jobs())) == 2


def test_the_limits_are_the_real_ones(cluster: LocalCluster) -> None:
    with pytest.raises(InvalidRequest, match="priority"):
        cluster.client.submit("double", priority=10**9)
    with pytest.raises(TooLarge):
        cluster.client.submit("double", "x" * 2_000_000)
    with pytest.raises(NotFound):
        cluster.client.job("nobody").look()


def test_a_waiting_job_is_cancelled_at_once_and_never_runs(cluster: LocalCluster) -> None:
    job = cluster.client.submit("double", {"n": 1})
    assert job.cancel() == "cancelled"
    assert cluster.run_all() == 0
    with pytest.raises(JobCancelled):
        job.result()


@pytest.mark.parametrize("listens", [True, False])
def test_a_running_job_that_is_cancelled_is_never_done(cluster: LocalCluster, *, listens: bool) -> None:
    """J7, whether the handler stops or brings its result all the same."""

    def handler(job: JobContext) -> object:
        assert cluster.client.cancel(job.job_id) == "running"
        assert job.cancelled
        if listens:
            job.raise_if_cancelled()
        return "too late"

    cluster.handle("long", handler)
    with pytest.raises(JobCancelled):
        cluster.client.submit("long").result()


def test_a_job_that_has_ended_runs_again_with_another_payload(cluster: LocalCluster) -> None:
    job = cluster.client.submit("double", {"n": 1})
    with pytest.raises(InvalidRequest, match="only a job that has ended"):
        job.retry()
    assert job.result() == 2
    assert cluster.client.retry(job.id, {"n": 5}).result() == 10
    assert [each.claim_token for each in job.attempts()] == [1, 3]


def test_delays_and_priorities_count(cluster: LocalCluster) -> None:
    ran: list[str] = []
    cluster.handle("note", lambda job: ran.append(job.payload))
    cluster.client.submit("note", "later", delay=timedelta(hours=1))
    cluster.client.submit("note", "plain")
    cluster.client.submit("note", "first", priority=100)
    cluster.run_all()
    assert ran == ["first", "plain"]
    cluster.advance(3601)
    assert ran == ["first", "plain", "later"]


def test_progress_logs_checkpoints_and_workspace_are_there(cluster: LocalCluster) -> None:
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

    cluster.handle("full", handler)
    job = cluster.client.submit("full")
    cluster.run_all()
    assert (job.look().progress, job.look().progress_note) == (0.5, "half")
    assert job.result() == 1
    assert [(line.claim_token, line.number, line.text) for line in job.logs(follow=True)] == [
        (1, 0, "hello"),
        (1, 1, "there"),
        (2, 0, "hello"),
        (2, 1, "there"),
    ]
    assert not any(place.exists() for place in places)


def test_a_batch_gets_many_jobs_and_each_ends_by_itself(cluster: LocalCluster) -> None:
    sizes: list[int] = []

    def handler(jobs: list[JobContext]) -> list[object]:
        sizes.append(len(jobs))
        bad = Failure(kind=FailureClass.USER_ERROR, error="odd")
        return [bad if job.payload % 2 else job.payload for job in jobs]

    cluster.handle("many", handler, batch=4)
    results = list(cluster.client.map("many", range(6), return_exceptions=True))
    assert sizes == [4, 2]
    assert [each for each in results if not isinstance(each, JobFailed)] == [0, 2, 4]


def test_what_happened_can_be_read(cluster: LocalCluster) -> None:
    job = cluster.client.submit("double", {"n": 1}, tags=["a"])
    job.result()
    assert [each.to_status for each in job.events()] == ["pending", "claimed", "running", "done"]
    assert [each.object_id for each in cluster.client.events(job_id=job.id)] == [job.id] * 4
    assert [each.job_id for each in cluster.client.jobs(status="done", tag="a")] == [job.id]
    assert list(cluster.client.jobs(status="pending")) == []
    assert [each.worker_id for each in cluster.client.workers()] == ["local-1"]


def test_long_lists_come_page_by_page(cluster: LocalCluster) -> None:
    handles = cluster.client.submit_many("double", [{"n": 0}] * 450)
    assert [each.job_id for each in cluster.client.jobs()] == sorted((each.id for each in handles), reverse=True)


def test_a_handler_may_wait_for_a_job_of_its_own(cluster: LocalCluster) -> None:
    cluster.handle("outer", lambda job: cluster.client.submit("double", job.payload).result() + 1)
    assert cluster.client.submit("outer", {"n": 2}).result() == 5


def test_a_job_that_nobody_can_run_waits_and_a_wait_for_it_ends(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "MOST_IDLE", 100)
    job = cluster.client.submit("unknown")
    with pytest.raises(TimeoutError, match="still pending"):
        job.result(timeout=60)
    with pytest.raises(RuntimeError, match="there are handlers for double"):
        job.result()


def test_the_async_client_works_on_the_same_herd(cluster: LocalCluster) -> None:
    async def go() -> object:
        job = await cluster.async_client.submit("double", {"n": 3})
        return await job.result()

    assert asyncio.run(go()) == 6


def test_jobs_of_any_pool_and_model_are_run(cluster: LocalCluster) -> None:
    cluster.handle("note", lambda job: (job.model, job.agent))
    mine = cluster.client.submit("note", pool="large", model="org/a", agent="team-a", concurrency_key="k")
    assert mine.result() == ["org/a", "team-a"]
    assert mine.look().pool == "large"


def test_a_handler_that_waits_for_hours_keeps_its_claim(cluster: LocalCluster) -> None:
    def outer(job: JobContext) -> object:
        inner = cluster.client.submit("double", {"n": 4}, delay=timedelta(hours=2))
        cluster.advance(7201)
        return inner.result(), job.attempt

    cluster.handle("outer", outer)
    assert cluster.client.submit("outer").result() == [8, 1]


def test_clusters_know_nothing_of_each_other_and_start_at_once(cluster: LocalCluster) -> None:
    cluster.client.submit("double", {"n": 1}, job_id="mine")
    began = time.perf_counter()
    others = [LocalCluster() for _ in range(5)]
    took = (time.perf_counter() - began) / len(others)
    assert [list(other.client.jobs()) for other in others] == [[]] * 5
    for other in others:
        other.close()
    assert took < 0.05
    assert cluster.client.submit("double", {"n": 1}, job_id="mine").created is False


def test_a_cluster_that_nobody_refers_to_leaves_no_thread() -> None:
    others = {each.ident for each in threading.enumerate()}
    cluster = LocalCluster()
    cluster.client.submit("any")
    del cluster
    gc.collect()
    assert not [each.name for each in threading.enumerate() if each.ident not in others]


def test_the_old_name_warns() -> None:
    with pytest.warns(DeprecationWarning, match="LocalCluster"):
        from herdsman.testing import LocalHerd  # noqa: PLC0415
    assert LocalHerd is LocalCluster
