"""How a claim ends: with a result, with a failure, or by giving the job back."""

from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import InvalidRequest, StaleWrite, TooLarge
from herdsman.jobs.commands import find_attempts, find_job
from herdsman.jobs.model import Failure, FailureClass
from herdsman.jobs.worker_commands import (
    LONGEST_ERROR,
    Finish,
    complete_job,
    fail_job,
    release_job,
    report_progress,
    start_job,
)
from herdsman.states import JobStatus, Reason
from tests.support.builders import BROKEN, HOPELESS, a_claim, a_job, claimed, replayed
from tests.support.databases import NOON, MovingClock
from tests.support.worker_calls import claim_job, complete_jobs

pytestmark = pytest.mark.usefixtures("stopped_clock")


def test_a_result_is_stored_with_the_end_of_the_job(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services, timeout=timedelta(minutes=1))
    start_job(services, claim.key)
    clock.advance(timedelta(seconds=5))
    assert complete_job(services, claim.key, {"images": ["a.png"]}, who="worker:w1") is Finish.DONE
    job = find_job(services, claim.key.job_id)
    assert (job.status, job.reason, job.result) == (JobStatus.DONE, Reason.COMPLETED, {"images": ["a.png"]})
    assert job.finished_at == NOON + timedelta(seconds=5)
    assert (job.worker_id, job.claim_expires_at, job.deadline_at) == (None, None, None)
    assert job.last_worker_id == "w1"
    assert replayed(services, job.job_id) == JobStatus.DONE


def test_done_means_all_of_it_whatever_was_told_last(services: Services) -> None:
    claim = a_claim(services)
    report_progress(services, claim.key, 0.4, "node 9 SaveImage")
    complete_job(services, claim.key)
    job = find_job(services, claim.key.job_id)
    assert (job.progress, job.progress_note) == (1.0, "node 9 SaveImage")


def test_a_job_may_be_done_without_having_been_started(services: Services) -> None:
    """J6: claimed -> done"""
    assert complete_job(services, a_claim(services).key) is Finish.DONE


def test_a_result_that_is_sent_again_changes_nothing(services: Services, clock: MovingClock) -> None:
    """J3: at most one completion"""
    claim = a_claim(services)
    complete_job(services, claim.key, "first")
    before = find_job(services, claim.key.job_id)
    clock.advance(timedelta(seconds=1))
    assert complete_job(services, claim.key, "second") is Finish.DONE
    assert find_job(services, claim.key.job_id) == before
    assert before.result == "first"


def test_many_results_are_stored_at_once(services: Services) -> None:
    claims = [a_claim(services, f"w{number}") for number in range(5)]
    results = {claim.key: {"n": number} for number, claim in enumerate(claims)}
    assert complete_jobs(services, results) == dict.fromkeys(results, Finish.DONE)
    assert [find_job(services, key.job_id).result for key in results] == list(results.values())
    assert complete_jobs(services, {}) == {}


def test_a_result_that_no_database_would_keep_is_refused(services: Services) -> None:
    claim = a_claim(services)
    with pytest.raises(TooLarge, match="result is 1,048,577 bytes, the limit is 1,048,576"):
        complete_job(services, claim.key, "x" * (services.policy.max_result_bytes - 1))
    with pytest.raises(InvalidRequest, match=r"result\.loss is nan"):
        complete_job(services, claim.key, {"loss": float("nan")})
    assert find_job(services, claim.key.job_id).status is JobStatus.CLAIMED


def test_a_failed_job_waits_for_its_retry_and_says_why(services: Services) -> None:
    claim = a_claim(services)
    assert fail_job(services, claim.key, BROKEN) is JobStatus.FAILED
    job = find_job(services, claim.key.job_id)
    assert (job.status, job.reason) == (JobStatus.FAILED, Reason.JOB_ERROR)
    assert (job.failure_class, job.last_error) == (FailureClass.JOB_ERROR, "the handler raised")
    assert (job.worker_id, job.claim_expires_at, job.finished_at) == (None, None, None)
    assert claim_job(services, claim.worker_id) is None


def test_a_hopeless_job_ends_at_once(services: Services) -> None:
    claim = a_claim(services)
    assert fail_job(services, claim.key, HOPELESS) is JobStatus.DEAD_LETTER
    job = find_job(services, claim.key.job_id)
    assert (job.reason, job.finished_at, job.last_error) == (Reason.USER_ERROR, NOON, "no such model")


def test_an_end_that_is_sent_again_is_refused_and_changes_nothing(services: Services) -> None:
    failed, released = a_claim(services), a_claim(services, "w2")
    fail_job(services, failed.key, BROKEN)
    release_job(services, released.key, "drained")
    before = [find_job(services, claim.key.job_id) for claim in (failed, released)]
    with pytest.raises(StaleWrite):
        fail_job(services, failed.key, BROKEN)
    with pytest.raises(StaleWrite):
        release_job(services, released.key, "drained")
    assert [find_job(services, claim.key.job_id) for claim in (failed, released)] == before


def test_a_released_job_keeps_its_place_and_loses_no_attempt(services: Services, clock: MovingClock) -> None:
    """J5: interruptions are counted apart"""
    claim = a_claim(services)
    before = find_job(services, claim.key.job_id)
    clock.advance(timedelta(seconds=5))
    a_job(services)
    assert release_job(services, claim.key, "the machine is taken back") is JobStatus.PENDING
    job = find_job(services, claim.key.job_id)
    assert (job.place, job.run_at, job.reason) == (before.place, before.run_at, Reason.RELEASED)
    assert (job.attempts, job.interruptions, job.worker_losses) == (1, 1, 0)
    assert claimed(services, claim.worker_id).key.job_id == job.job_id


def test_a_job_that_is_interrupted_for_ever_ends(services: Services) -> None:
    """J5: cap 20"""
    claim = a_claim(services, max_attempts=1)
    limit = services.policy.retry.max_interruptions
    for _ in range(limit - 1):
        assert release_job(services, claim.key, "drained") is JobStatus.PENDING
        claim = claimed(services, claim.worker_id)
    assert release_job(services, claim.key, "drained") is JobStatus.DEAD_LETTER
    job = find_job(services, claim.key.job_id)
    assert (job.reason, job.attempts, limit) == (Reason.INTERRUPTED_TOO_OFTEN, 20, 20)


def test_a_long_error_is_cut_and_a_hostile_one_is_kept(services: Services) -> None:
    claim = a_claim(services)
    error = "\0\ud800 '; DROP TABLE workers; -- \u202e\U0001f600" + "x" * LONGEST_ERROR
    fail_job(services, claim.key, Failure(kind=FailureClass.JOB_ERROR, error=error))
    kept = find_job(services, claim.key.job_id).last_error
    assert kept is not None
    assert len(kept) <= LONGEST_ERROR
    assert "'; DROP TABLE workers; -- \u202e\U0001f600xxx" in kept
    assert find_attempts(services, claim.key.job_id)[0].error == kept
