"""Workers that are stopped, or cut off from the API: what they hold is done once, by them or by another (W5, J3)."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from herdsman.ids import JobId
from herdsman.jobs.commands import find_attempts
from herdsman.states import HELD, JobStatus
from tests.chaos.site import Site, site
from tests.conftest import Backend

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

LATE = {"HEARTBEAT_INTERVAL_SEC": "0.5", "SELF_FENCE_SEC": "30", "CLAIM_TTL_SEC": "40"}
"""An outage that a test makes is short for such a worker."""


@pytest.fixture
def cluster(url: str, tmp_path: Path) -> Iterator[Site]:
    with site(url, tmp_path) as here:
        yield here


@pytest.fixture
def sqlite_url(sqlite: Backend) -> Iterator[str]:
    """For what takes place between worker and API, and is the same on every database."""
    fresh = sqlite.fresh()
    yield fresh
    sqlite.drop(fresh)


def held_up(cluster: Site, worker: str, step: str = "log", *, seconds: float = 0) -> tuple[JobId, Path, int]:
    """A job that this worker has brought to that step, the file that lets it go on, and its process."""
    here = cluster.directory / f"here-{len(cluster.numbers)}"
    job_id = cluster.submit("twin", stay=step, here=str(here), seconds=seconds)
    cluster.until(here.exists)
    (pid,) = cluster.handlers_of(worker)
    return job_id, here.with_suffix(".go"), pid


def test_a_worker_that_slept_past_its_claim_is_refused_and_stops(cluster: Site) -> None:
    """Of two sleepers one wakes with a result while another works on its job, the other when its job is done."""
    early = cluster.work("twin")
    first, go_first, _ = held_up(cluster, early, seconds=0.3)
    late = cluster.work("twin")
    second, go_second, handler = held_up(cluster, late)
    for worker in (early, late):
        cluster.pack.pause(worker)
    os.kill(handler, signal.SIGSTOP)
    for go in (go_first, go_second):
        go.touch()
    cluster.work("twin")
    cluster.until(lambda: cluster.did("started", first) == 2 and cluster.did("finished", first))
    cluster.pack.resume(early)
    cluster.until(lambda: f"job {first} was taken away before its end could be reported" in cluster.said(early))
    cluster.until_done()
    cluster.pack.resume(late)
    cluster.until(lambda: f"job {second} is stopped" in cluster.said(late))
    cluster.until(lambda: handler not in cluster.handlers_of(late))
    cluster.check()
    for job_id in (first, second):
        lost, done = find_attempts(cluster.services, job_id)
        assert (lost.outcome, done.outcome) == ("pending", "done")
        assert lost.worker_id != done.worker_id


def test_a_handler_whose_supervisor_stands_still_has_ended_before_the_next_begins(
    sqlite_url: str, tmp_path: Path
) -> None:
    """W8: it works on without a pause, and what it does stands in one book with what the next one does."""
    with site(sqlite_url, tmp_path) as cluster:
        asleep = cluster.work("twin")
        job_id = cluster.submit("twin", endless=True)
        cluster.until(lambda: cluster.did("works", job_id))
        (handler,) = cluster.handlers_of(asleep)
        cluster.pack.pause(asleep)
        cluster.work("twin")
        cluster.until_done()
        assert handler not in cluster.handlers_of(asleep), "its supervisor still sleeps"
        by_attempt = [line.attempt for line in cluster.lines() if line.job_id == job_id]
        assert by_attempt == sorted(by_attempt), "side by side"
        cluster.pack.resume(asleep)
        cluster.until(lambda: f"job {job_id} was taken away before its end could be reported" in cluster.said(asleep))
        stopped = f"job {job_id} is stopped: no heartbeat was accepted for too long"
        cluster.until(lambda: stopped in cluster.said(asleep))
        cluster.check()


@pytest.mark.parametrize("step", ["started", "log"])
def test_a_job_outlives_an_outage_of_the_api_that_is_shorter_than_the_fence(
    sqlite_url: str, tmp_path: Path, step: str
) -> None:
    """Whether it wants something from the API meanwhile, its checkpoint, or only to say that it is done."""
    with site(sqlite_url, tmp_path, **LATE) as cluster:
        worker = cluster.work("twin")
        job_id, go, handler = held_up(cluster, worker, step)
        cluster.kill_api()
        go.touch()
        lost = f"lost the connection to http://127.0.0.1:{cluster.port}: "
        cluster.until(lambda: lost in cluster.said(worker))
        cluster.until(lambda: "; retrying, the running job goes on until " in cluster.said(worker))
        if step == "log":
            cluster.until(lambda: cluster.did("finished", job_id))
        assert cluster.job(job_id).status is JobStatus.RUNNING
        cluster.open()
        cluster.until_done()
        cluster.check()
        assert (cluster.job(job_id).attempts, cluster.handlers_of(worker)) == (1, [handler])
        cluster.until(lambda: "connected again after " in cluster.said(worker))
        assert cluster.said(worker).count("lost the connection") == 1
        assert cluster.said(worker).count("connected again after ") == 1


def test_a_worker_that_is_cut_off_for_longer_fences_itself_and_another_does_the_job_once(
    sqlite_url: str, tmp_path: Path
) -> None:
    with site(sqlite_url, tmp_path) as cluster:
        worker = cluster.work("twin")
        job_id, go, handler = held_up(cluster, worker)
        cluster.kill_api()
        cluster.until(lambda: "no heartbeat was accepted for too long" in cluster.said(worker))
        cluster.until(lambda: handler not in cluster.handlers_of(worker))
        assert cluster.job(job_id).status in HELD, "nobody could take it meanwhile"
        cluster.pack.pause(worker)
        cluster.open()
        go.touch()
        other = cluster.work("twin")
        cluster.until_done()
        cluster.until(lambda: f"job {job_id} is done" in cluster.said(other))
        cluster.pack.resume(worker)
        cluster.until(lambda: "connected again after " in cluster.said(worker))
        cluster.check()
        assert cluster.did("finished", job_id) == 1
