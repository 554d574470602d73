"""A job that should have ended, by its deadline or because it was cancelled, is not left to a worker that does not stop it."""

from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import StaleWrite
from herdsman.jobs.commands import cancel_job, find_job
from herdsman.jobs.model import FailureClass
from herdsman.jobs.sweep import expire_claims
from herdsman.jobs.worker_commands import complete_job, start_job
from herdsman.states import JobStatus, Reason
from tests.support.builders import a_claim
from tests.support.databases import MovingClock
from tests.support.worker_calls import beat

pytestmark = pytest.mark.usefixtures("stopped_clock")


SECOND = timedelta(seconds=1)


def test_a_job_that_runs_too_long_is_ended_though_its_worker_lives(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services, timeout=timedelta(minutes=10))
    start_job(services, claim.key)
    clock.advance(timedelta(minutes=10) + patience(services))
    beat(services, claim.worker_id, claim.key)
    assert expire_claims(services) == 0  # the worker has some time to end it by itself
    clock.advance(SECOND)
    assert expire_claims(services) == 1
    job = find_job(services, claim.key.job_id)
    assert (job.status, job.reason, job.failure_class) == (
        JobStatus.FAILED,
        Reason.TIMEOUT,
        FailureClass.TIMEOUT,
    )
    assert (job.worker_losses, job.last_error) == (0, "the job ran on after it should have ended")


def test_j7_a_worker_that_ignores_a_cancellation_is_overruled(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services)
    cancel_job(services, claim.key.job_id)
    clock.advance(patience(services))
    beat(services, claim.worker_id, claim.key)
    assert expire_claims(services) == 0
    clock.advance(SECOND)
    assert expire_claims(services) == 1
    assert find_job(services, claim.key.job_id).status is JobStatus.CANCELLED
    with pytest.raises(StaleWrite):
        complete_job(services, claim.key)


def test_a_cancelled_job_whose_worker_died_is_cancelled(services: Services, clock: MovingClock) -> None:
    """J7"""
    claim = a_claim(services)
    cancel_job(services, claim.key.job_id)
    clock.advance(services.policy.claim_ttl + SECOND)
    assert expire_claims(services) == 1
    assert find_job(services, claim.key.job_id).status is JobStatus.CANCELLED


def patience(services: Services) -> timedelta:
    return services.policy.cancel_grace + services.policy.claim_ttl
