"""The example of docs/your-first-test.md."""

from datetime import timedelta

from herdsman.context import Services
from herdsman.jobs.commands import find_job
from herdsman.jobs.sweep import expire_claims
from herdsman.states import JobStatus
from tests.support.builders import a_claim
from tests.support.databases import MovingClock


def test_the_job_of_a_silent_worker_waits_again(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services)
    clock.advance(services.policy.claim_ttl + timedelta(seconds=1))
    assert expire_claims(services) == 1
    assert find_job(services, claim.key.job_id).status is JobStatus.PENDING
