"""Jobs that fail are tried again later, never at the head of the queue, and not for ever."""

from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.jobs.commands import find_attempts, find_job
from herdsman.jobs.model import Claim, Failure, FailureClass
from herdsman.jobs.sweep import expire_claims, stage_due_jobs
from herdsman.jobs.worker_commands import complete_job, fail_job, release_job
from herdsman.states import JobStatus, Reason
from tests.support.builders import BROKEN, a_claim, a_job, claimed, replayed
from tests.support.databases import NOON, MovingClock
from tests.support.worker_calls import claim_job

pytestmark = pytest.mark.usefixtures("stopped_clock")
OUT_OF_MEMORY = Failure(kind=FailureClass.OUT_OF_MEMORY, error="CUDA out of memory")
DAY = timedelta(days=1)


def test_j8_a_retry_waits_for_backoff_and_jitter(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services, max_attempts=10)
    policy = services.policy.retry
    for doublings in range(8):
        began = NOON + doublings * DAY
        fail_job(services, claim.key, BROKEN)
        waits = find_job(services, claim.key.job_id).run_at - began
        plain = min(policy.cap, policy.base * 2**doublings)
        assert plain <= waits <= plain * (1 + policy.jitter)
        clock.advance(waits - timedelta(microseconds=1))
        assert stage_due_jobs(services) == 0
        clock.stop(at=NOON + (doublings + 1) * DAY)
        claim = tried_again(services, claim)


def test_j8_a_retry_goes_behind_what_became_due_before_it(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services)
    fail_job(services, claim.key, BROKEN)
    due = find_job(services, claim.key.job_id).run_at
    clock.stop(at=due - timedelta(microseconds=20))
    earlier = a_job(services)
    clock.stop(at=due + timedelta(microseconds=20))
    later = a_job(services)
    stage_due_jobs(services)
    order = [claimed_and_done(services, claim) for _ in range(3)]
    assert order == [earlier, claim.key.job_id, later]


def test_j8_a_job_whose_worker_died_goes_behind_what_waits(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services)
    waiting = a_job(services)
    clock.advance(services.policy.claim_ttl + timedelta(seconds=1))
    expire_claims(services)
    assert [claimed_and_done(services, claim) for _ in range(2)] == [waiting, claim.key.job_id]


def test_j5_after_the_last_attempt_the_job_is_dead_with_all_its_errors(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services)
    for number in (1, 2):
        assert fail_job(services, claim.key, error(f"error {number}")) is JobStatus.FAILED
        clock.advance(DAY)
        claim = tried_again(services, claim)
    assert fail_job(services, claim.key, error("error 3")) is JobStatus.DEAD_LETTER
    job = find_job(services, claim.key.job_id)
    assert (job.reason, job.attempts, job.last_error) == (Reason.ATTEMPTS_EXHAUSTED, 3, "error 3")
    errors = [attempt.error for attempt in find_attempts(services, job.job_id)]
    assert errors == ["error 1", "error 2", "error 3"]
    assert replayed(services, job.job_id) == JobStatus.DEAD_LETTER


def test_a_job_may_bring_its_own_number_of_attempts_and_its_own_pace(services: Services, clock: MovingClock) -> None:
    base, cap = timedelta(hours=2), timedelta(hours=3)
    claim = a_claim(services, max_attempts=3, retry_base=base, retry_cap=cap)
    for plain in (base, cap):
        now = services.database.read(lambda tx: tx.now())
        assert fail_job(services, claim.key, BROKEN) is JobStatus.FAILED
        waits = find_job(services, claim.key.job_id).run_at - now
        assert plain <= waits <= plain * (1 + services.policy.retry.jitter)
        clock.advance(DAY)
        claim = tried_again(services, claim)
    assert fail_job(services, claim.key, BROKEN) is JobStatus.DEAD_LETTER


def test_a_job_with_one_attempt_is_not_tried_again(services: Services) -> None:
    claim = a_claim(services, max_attempts=1)
    assert fail_job(services, claim.key, BROKEN) is JobStatus.DEAD_LETTER


def test_a_job_that_needs_more_memory_than_there_is_stops_after_two(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services, max_attempts=9)
    assert fail_job(services, claim.key, OUT_OF_MEMORY) is JobStatus.FAILED
    clock.advance(DAY)
    claim = tried_again(services, claim)
    assert fail_job(services, claim.key, OUT_OF_MEMORY) is JobStatus.DEAD_LETTER
    job = find_job(services, claim.key.job_id)
    assert (job.reason, job.out_of_memory) == (Reason.OUT_OF_MEMORY_AGAIN, 2)


def test_j5_interruptions_are_not_taken_from_the_attempts(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services, max_attempts=2)
    for _ in range(5):
        release_job(services, claim.key, "drained")
        claim = claimed(services, claim.worker_id)
    assert fail_job(services, claim.key, BROKEN) is JobStatus.FAILED
    clock.advance(DAY)
    claim = tried_again(services, claim)
    assert claim.attempt == 7
    assert fail_job(services, claim.key, BROKEN) is JobStatus.DEAD_LETTER


def tried_again(services: Services, before: Claim) -> Claim:
    assert claim_job(services, before.worker_id) is None, "a failed job is not due before it is staged"
    assert stage_due_jobs(services) == 1
    claim = claimed(services, before.worker_id)
    assert claim.key.job_id == before.key.job_id
    return claim


def claimed_and_done(services: Services, before: Claim) -> str:
    claim = claimed(services, before.worker_id)
    complete_job(services, claim.key)
    return claim.key.job_id


def error(text: str) -> Failure:
    return Failure(kind=FailureClass.JOB_ERROR, error=text)
