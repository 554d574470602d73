"""Workers that are stopped, or cut off from the API: what they hold is done once, by them or by another (W5, J3)."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from herdsman.ids import JobId
from herdsman.jobs.commands import find_attempts
from herdsman.states import HELD, JobState
from tests.chaos.site import Site, site
from tests.conftest import Backend

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

LATE = {"HEARTBEAT_INTERVAL_SEC": "0.5", "SELF_FENCE_SEC": "30", "CLAIM_TTL_SEC": "40"}
"""An outage that a test makes is short for such a worker."""


@pytest.fixture
def yard(url: str, tmp_path: Path) -> Iterator[Site]:
    with site(url, tmp_path) as here:
        yield here


@pytest.fixture
def sqlite_url(sqlite: Backend) -> Iterator[str]:
    """For what takes place between worker and API, and is the same on every database."""
    fresh = sqlite.fresh()
    yield fresh
    sqlite.drop(fresh)


def held_up(yard: Site, worker: str, step: str = "log", *, seconds: float = 0) -> tuple[JobId, Path, int]:
    """A job that this worker has brought to that step, the file that lets it go on, and its process."""
    here = yard.directory / f"here-{len(yard.numbers)}"
    job_id = yard.submit("twin", stay=step, here=str(here), seconds=seconds)
    yard.until(here.exists)
    (pid,) = yard.handlers_of(worker)
    return job_id, here.with_suffix(".go"), pid


def test_a_worker_that_slept_past_its_claim_is_refused_and_stops(yard: Site) -> None:
    """Of two sleepers one wakes with a result while another works on its job, the other when its job is done."""
    early = yard.work("twin")
    first, go_first, _ = held_up(yard, early, seconds=0.3)
    late = yard.work("twin")
    second, go_second, handler = held_up(yard, late)
    for worker in (early, late):
        yard.pack.pause(worker)
    os.kill(handler, signal.SIGSTOP)
    for go in (go_first, go_second):
        go.touch()
    yard.work("twin")
    yard.until(lambda: yard.did("started", first) == 2 and yard.did("finished", first))
    yard.pack.resume(early)
    yard.until(lambda: f"job {first} was taken away before its end could be reported" in yard.said(early))
    yard.until_done()
    yard.pack.resume(late)
    yard.until(lambda: f"job {second} is stopped" in yard.said(late))
    yard.until(lambda: handler not in yard.handlers_of(late))
    yard.check()
    for job_id in (first, second):
        lost, done = find_attempts(yard.services, job_id)
        assert (lost.outcome, done.outcome) == ("pending", "done")
        assert lost.worker_id != done.worker_id


def test_a_handler_whose_supervisor_stands_still_has_ended_before_the_next_begins(
    sqlite_url: str, tmp_path: Path
) -> None:
    """W8: it works on without a pause, and what it does stands in one book with what the next one does."""
    with site(sqlite_url, tmp_path) as yard:
        asleep = yard.work("twin")
        job_id = yard.submit("twin", endless=True)
        yard.until(lambda: yard.did("works", job_id))
        (handler,) = yard.handlers_of(asleep)
        yard.pack.pause(asleep)
        yard.work("twin")
        yard.until_done()
        assert handler not in yard.handlers_of(asleep), "its supervisor still sleeps"
        by_attempt = [line.attempt for line in yard.lines() if line.job_id == job_id]
        assert by_attempt == sorted(by_attempt), "side by side"
        yard.pack.resume(asleep)
        yard.until(
            lambda: f"job {job_id} was taken away before its end could be reported" in yard.said(asleep)
        )
        stopped = f"job {job_id} is stopped: no heartbeat was accepted for too long"
        yard.until(lambda: stopped in yard.said(asleep))
        yard.check()


@pytest.mark.parametrize("step", ["started", "log"])
def test_a_job_outlives_an_outage_of_the_api_that_is_shorter_than_the_fence(
    sqlite_url: str, tmp_path: Path, step: str
) -> None:
    """Whether it wants something from the API meanwhile, its checkpoint, or only to say that it is done."""
    with site(sqlite_url, tmp_path, **LATE) as yard:
        worker = yard.work("twin")
        job_id, go, handler = held_up(yard, worker, step)
        yard.kill_api()
        go.touch()
        lost = f"lost the connection to http://127.0.0.1:{yard.port}: "
        yard.until(lambda: lost in yard.said(worker))
        yard.until(lambda: "; retrying, the running job goes on until " in yard.said(worker))
        if step == "log":
            yard.until(lambda: yard.did("finished", job_id))
        assert yard.job(job_id).state is JobState.RUNNING
        yard.open()
        yard.until_done()
        yard.check()
        assert (yard.job(job_id).attempts, yard.handlers_of(worker)) == (1, [handler])
        yard.until(lambda: "connected again after " in yard.said(worker))
        assert yard.said(worker).count("lost the connection") == 1
        assert yard.said(worker).count("connected again after ") == 1


def test_a_worker_that_is_cut_off_for_longer_fences_itself_and_another_does_the_job_once(
    sqlite_url: str, tmp_path: Path
) -> None:
    with site(sqlite_url, tmp_path) as yard:
        worker = yard.work("twin")
        job_id, go, handler = held_up(yard, worker)
        yard.kill_api()
        yard.until(lambda: "no heartbeat was accepted for too long" in yard.said(worker))
        yard.until(lambda: handler not in yard.handlers_of(worker))
        assert yard.job(job_id).state in HELD, "nobody could take it meanwhile"
        yard.pack.pause(worker)
        yard.open()
        go.touch()
        other = yard.work("twin")
        yard.until_done()
        yard.until(lambda: f"job {job_id} is done" in yard.said(other))
        yard.pack.resume(worker)
        yard.until(lambda: "connected again after " in yard.said(worker))
        yard.check()
        assert yard.did("finished", job_id) == 1
