"""Two who sweep at once, or sweep while workers finish: each job is moved once."""

from datetime import timedelta

from herdsman.context import Services
from herdsman.jobs.commands import list_jobs, submit_jobs
from herdsman.jobs.model import ClaimKey, NewJob
from herdsman.jobs.sweep import expire_claims, stage_due_jobs
from herdsman.jobs.worker_commands import Finish
from herdsman.states import JobStatus
from tests.support.builders import a_worker, scalar
from tests.support.databases import MovingClock
from tests.support.threads import at_once
from tests.support.worker_calls import claim_jobs, complete_jobs

MINUTE = timedelta(minutes=1)


def test_j4_two_sweepers_expire_each_claim_once(services: Services, clock: MovingClock) -> None:
    held = claims_of_many(services, 400)
    clock.advance(services.policy.claim_ttl + MINUTE)
    assert sum(at_once(2, lambda _: expire_claims(services))) == held
    expired = "SELECT COUNT(*) FROM orchestrator_audit WHERE reason = 'claim_expired'"
    assert scalar(services.database, expired) == held
    assert scalar(services.database, "SELECT COUNT(*) FROM orchestrator_jobs WHERE worker_losses = 1") == held


def test_two_stagers_queue_each_job_once(services: Services, clock: MovingClock) -> None:
    submit_jobs(services, [NewJob(type="demo", delay=MINUTE) for _ in range(1000)])
    clock.advance(MINUTE)
    assert sum(at_once(2, lambda _: stage_due_jobs(services))) == 1000
    assert scalar(services.database, "SELECT COUNT(*) FROM orchestrator_audit WHERE reason = 'due'") == 1000


def test_j4_a_sweep_and_a_beat_at_the_same_moment_agree(services: Services, clock: MovingClock) -> None:
    """Either the claim is kept or it is lost; nobody completes a job that was taken away."""
    claims_of_many(services, 60)
    keys = [ClaimKey(job.job_id, 1) for job in list_jobs(services, limit=100).jobs if job.status is JobStatus.CLAIMED]
    clock.advance(services.policy.claim_ttl + MINUTE)

    def work(number: int) -> int:
        return expire_claims(services) if number == 0 else completed(services, keys[number - 1 :: 6])

    swept, *finished = at_once(7, work)
    assert swept + sum(finished) == 60


def completed(services: Services, keys: list[ClaimKey]) -> int:
    return sum(complete_jobs(services, {key: None})[key] is Finish.DONE for key in keys)


def claims_of_many(services: Services, count: int) -> int:
    submit_jobs(services, [NewJob(type="demo") for _ in range(count)])
    workers = [a_worker(services, f"w{number}") for number in range(count)]
    return len(claim_jobs(services, workers))
