"""Stopping a job: once that is acknowledged, it is never done (J7)."""

from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import NotFound, StaleWrite
from herdsman.ids import JobId
from herdsman.jobs.commands import cancel_job, find_history, find_job
from herdsman.jobs.model import ClaimKey, Failure, FailureClass
from herdsman.jobs.worker_commands import Finish, complete_job, fail_job, release_job, start_job
from herdsman.states import JobStatus, Reason
from tests.support.builders import BROKEN, a_claim, a_job, a_worker, an_ended_job, replayed
from tests.support.databases import NOON, MovingClock
from tests.support.worker_calls import beat, claim_job


@pytest.mark.parametrize("state", [JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.FAILED])
def test_j7_a_job_that_waits_is_cancelled_at_once(services: Services, clock: MovingClock, state: JobStatus) -> None:
    clock.stop(at=NOON)
    job_id = a_waiting_job(services, state)
    assert cancel_job(services, job_id, who="ann") is JobStatus.CANCELLED
    job = find_job(services, job_id)
    assert (job.status, job.reason, job.finished_at) == (JobStatus.CANCELLED, Reason.CANCELLED, NOON)
    assert find_history(services, job_id)[-1].actor == "ann"
    assert claim_job(services, a_worker(services, "w2")) is None
    assert replayed(services, job_id) == JobStatus.CANCELLED


@pytest.mark.parametrize("started", [False, True], ids=["claimed", "running"])
def test_j7_of_a_held_job_the_worker_is_told(services: Services, started: bool) -> None:
    claim = a_claim(services)
    if started:
        start_job(services, claim.key)
    state = JobStatus.RUNNING if started else JobStatus.CLAIMED
    assert cancel_job(services, claim.key.job_id) is state
    job = find_job(services, claim.key.job_id)
    assert (job.status, job.worker_id) == (state, "w1")  # the slot is free only when the process is gone
    assert job.cancel_requested_at is not None
    assert beat(services, claim.worker_id, claim.key).cancel
    assert replayed(services, job.job_id) == state


def test_j7_a_result_that_comes_after_the_cancel_is_thrown_away(services: Services) -> None:
    claim = a_claim(services)
    cancel_job(services, claim.key.job_id)
    assert complete_job(services, claim.key, "too late") is Finish.CANCELLED
    job = find_job(services, claim.key.job_id)
    assert (job.status, job.result, job.worker_id) == (JobStatus.CANCELLED, None, None)
    assert job.finished_at is not None


@pytest.mark.parametrize("kind", FailureClass)
def test_j7_however_the_worker_lets_go_the_job_is_cancelled(services: Services, kind: FailureClass) -> None:
    claim = a_claim(services)
    cancel_job(services, claim.key.job_id)
    assert fail_job(services, claim.key, Failure(kind=kind, error="stopped")) is JobStatus.CANCELLED
    assert replayed(services, claim.key.job_id) == JobStatus.CANCELLED


def test_j7_a_job_is_started_by_nobody_once_it_was_cancelled(services: Services) -> None:
    """A worker that has not begun may begin only to stop: the job still never becomes done."""
    claim = a_claim(services)
    cancel_job(services, claim.key.job_id)
    start_job(services, claim.key)
    assert complete_job(services, claim.key) is Finish.CANCELLED


@pytest.mark.parametrize("state", [JobStatus.DONE, JobStatus.DEAD_LETTER])
def test_a_job_that_has_ended_stays_as_it_ended(services: Services, state: JobStatus) -> None:
    job_id = an_ended_job(services, state)
    before = find_job(services, job_id)
    assert cancel_job(services, job_id) is state
    assert find_job(services, job_id) == before


def test_cancelling_again_changes_nothing(services: Services) -> None:
    waiting, held = a_job(services, delay=timedelta(hours=1)), a_claim(services).key.job_id
    answers = [cancel_job(services, job_id) for job_id in (waiting, held)]
    before = [find_job(services, job_id) for job_id in (waiting, held)]
    assert [cancel_job(services, job_id) for job_id in (waiting, held)] == answers
    assert [find_job(services, job_id) for job_id in (waiting, held)] == before


def test_a_result_sent_again_after_a_late_cancel_is_still_refused(services: Services) -> None:
    claim = a_claim(services)
    cancel_job(services, claim.key.job_id)
    complete_job(services, claim.key)
    with pytest.raises(StaleWrite, match="which is cancelled under claim 1"):
        complete_job(services, claim.key)


def test_a_request_to_cancel_is_a_step_in_the_audit(services: Services) -> None:
    """A1"""
    claim = a_claim(services)
    cancel_job(services, claim.key.job_id, who="ann")
    last = find_history(services, claim.key.job_id)[-1]
    assert (last.event_type, last.reason, last.actor) == (
        "job.cancel_requested",
        Reason.CANCEL_REQUESTED,
        "ann",
    )
    assert (last.from_status, last.to_status) == (JobStatus.CLAIMED, JobStatus.CLAIMED)


def test_a_stale_worker_learns_nothing_of_the_cancel(services: Services) -> None:
    claim = a_claim(services)
    cancel_job(services, claim.key.job_id)
    old = ClaimKey(claim.key.job_id, claim.key.token - 1)
    with pytest.raises(StaleWrite):
        release_job(services, old, "drained")
    assert find_job(services, claim.key.job_id).status is JobStatus.CLAIMED


def test_there_must_be_a_job_to_cancel(services: Services) -> None:
    with pytest.raises(NotFound, match="there is no job 'none'"):
        cancel_job(services, JobId("none"))


def a_waiting_job(services: Services, state: JobStatus) -> JobId:
    match state:
        case JobStatus.SCHEDULED:
            return a_job(services, delay=timedelta(hours=1))
        case JobStatus.FAILED:
            claim = a_claim(services)
            fail_job(services, claim.key, BROKEN)
            return claim.key.job_id
        case _:
            return a_job(services)
