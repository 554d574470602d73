"""What happens by itself: jobs of silent workers come back, and jobs that run too long are ended."""

from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.jobs.commands import find_attempts, find_job, submit_jobs
from herdsman.jobs.model import Failure, FailureClass, JobPolicy, NewJob
from herdsman.jobs.sweep import expire_claims, stage_due_jobs
from herdsman.jobs.worker_commands import complete_job, fail_job, report_progress, start_job
from herdsman.server.wiring import new_job_id
from herdsman.states import JobStatus, Reason
from tests.support.builders import a_claim, a_job, a_worker, claimed, replayed, scalar
from tests.support.databases import NOON, MovingClock, opened
from tests.support.worker_calls import beat, claim_jobs

pytestmark = pytest.mark.usefixtures("stopped_clock")
SECOND = timedelta(seconds=1)


def test_j4_a_silent_worker_s_job_is_pending_again(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services)
    clock.advance(services.policy.claim_ttl)
    assert expire_claims(services) == 0
    clock.advance(SECOND)
    assert expire_claims(services) == 1
    job = find_job(services, claim.key.job_id)
    assert (job.status, job.reason, job.run_at) == (
        JobStatus.PENDING,
        Reason.CLAIM_EXPIRED,
        NOON + services.policy.claim_ttl + SECOND,
    )
    assert (job.attempts, job.worker_losses, job.failure_class) == (1, 1, FailureClass.WORKER_LOST)
    assert expire_claims(services) == 0
    assert replayed(services, job.job_id) == JobStatus.PENDING


def test_j4_the_sweep_goes_through_everything_whatever_waits_before_it(services: Services, clock: MovingClock) -> None:
    """More claims than one batch holds, of types that nobody knows, behind a long queue."""
    submit_jobs(services, [NewJob(type=f"type-{number}") for number in range(900)])
    workers = [a_worker(services, f"w{number}") for number in range(600)]
    assert len(claim_jobs(services, workers)) == 600
    clock.advance(services.policy.claim_ttl + SECOND)
    assert expire_claims(services) == 600
    assert scalar(services.database, "SELECT COUNT(*) FROM orchestrator_jobs WHERE status = 'pending'") == 900


@pytest.mark.parametrize("sign", ["beat", "progress"])
def test_a_sign_of_life_keeps_a_claim(services: Services, clock: MovingClock, sign: str) -> None:
    claim = a_claim(services)
    for _ in range(5):
        clock.advance(services.policy.claim_ttl - SECOND)
        if sign == "beat":
            beat(services, claim.worker_id, claim.key)
        else:
            report_progress(services, claim.key, 0.5)
        assert expire_claims(services) == 0
    assert find_job(services, claim.key.job_id).status is JobStatus.CLAIMED


def test_j5_a_job_that_kills_its_workers_stops_after_two(services: Services, clock: MovingClock) -> None:
    a_job(services, max_attempts=10)
    for name in ("w1", "w2"):
        claim = claimed(services, a_worker(services, name))
        start_job(services, claim.key)
        clock.advance(services.policy.claim_ttl + SECOND)
        assert expire_claims(services) == 1
        job = find_job(services, claim.key.job_id)
    assert (job.status, job.reason, job.worker_losses) == (JobStatus.DEAD_LETTER, Reason.KILLS_WORKERS, 2)
    assert [attempt.worker_id for attempt in find_attempts(services, job.job_id)] == ["w1", "w2"]


def test_j9_another_process_goes_on_where_this_one_stopped(services: Services, clock: MovingClock, url: str) -> None:
    """Delays, retries, expiries and deadlines are columns: nothing was lost with the memory of the first process."""
    delayed = a_job(services, delay=timedelta(minutes=1))
    retried, silent, late = (a_claim(services, f"w{n}", timeout=timedelta(minutes=1)) for n in range(3))
    fail_job(services, retried.key, Failure(kind=FailureClass.INFRASTRUCTURE, error="no disk"))
    start_job(services, late.key)
    services.database.close()
    with opened(url, clock) as reopened:
        other = Services(reopened, JobPolicy(), new_job_id)
        clock.advance(timedelta(minutes=3))
        beat(other, late.worker_id, late.key)
        assert (expire_claims(other), stage_due_jobs(other)) == (2, 2)
        states = [find_job(other, job_id).status for job_id in (delayed, retried.key.job_id, silent.key.job_id)]
        assert states == [JobStatus.PENDING] * 3
        assert find_job(other, late.key.job_id).reason is Reason.TIMEOUT


def test_j1_every_job_ends_once_faults_stop(services: Services, clock: MovingClock) -> None:
    ids = [a_job(services, max_attempts=2) for _ in range(6)]
    workers = [a_worker(services, f"w{number}") for number in range(3)]
    for round_number in range(12):
        for number, claim in enumerate(claim_jobs(services, workers)):
            if (number + round_number) % 3 == 0:
                complete_job(services, claim.key)
            elif (number + round_number) % 3 == 1:
                fail_job(services, claim.key, Failure(kind=FailureClass.JOB_ERROR, error="flaky"))
        clock.advance(timedelta(minutes=10))
        expire_claims(services)
        stage_due_jobs(services)
    ended = {find_job(services, job_id).status for job_id in ids}
    assert ended <= {JobStatus.DONE, JobStatus.DEAD_LETTER}
    assert all(replayed(services, job_id) == find_job(services, job_id).status for job_id in ids)
