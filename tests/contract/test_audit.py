"""Everything that happened to a job can be read afterwards: each step in the audit, each try in its attempts."""

from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.ids import JobId
from herdsman.jobs.commands import cancel_job, find_attempts, find_history, find_job, requeue_job
from herdsman.jobs.sweep import expire_claims, stage_due_jobs
from herdsman.jobs.worker_commands import complete_job, fail_job, start_job
from herdsman.states import JobStatus
from tests.support.builders import BROKEN, HOPELESS, a_claim, a_job, a_worker, claimed, replayed
from tests.support.databases import NOON, MovingClock
from tests.support.power_cut import Fuse

pytestmark = pytest.mark.usefixtures("stopped_clock")
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


def test_a1_a_long_life_is_told_without_a_gap(services: Services, clock: MovingClock) -> None:
    job_id = a_long_life(services, clock)
    told = [(entry.event_type, entry.reason, entry.actor) for entry in find_history(services, job_id)]
    assert told == [
        ("job.scheduled", "submitted", "agent:studio"),
        ("job.pending", "due", "leader"),
        ("job.claimed", "claimed", "worker:w1"),
        ("job.running", "started", "worker:w1"),
        ("job.failed", "job_error", "worker:w1"),
        ("job.pending", "due", "leader"),
        ("job.claimed", "claimed", "worker:w1"),
        ("job.pending", "claim_expired", "leader"),
        ("job.claimed", "claimed", "worker:w1"),
        ("job.dead_letter", "user_error", "worker:w1"),
        ("job.pending", "requeued", "ann"),
        ("job.claimed", "claimed", "worker:w1"),
        ("job.cancel_requested", "cancel_requested", "ann"),
        ("job.cancelled", "cancelled", "worker:w1"),
    ]
    assert replayed(services, job_id) == find_job(services, job_id).status == JobStatus.CANCELLED
    assert find_job(services, job_id).version == len(told)


def test_a1_a_step_carries_the_time_and_the_claim_it_belongs_to(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services)
    clock.advance(SECOND)
    fail_job(services, claim.key, BROKEN)
    last = find_history(services, claim.key.job_id)[-1]
    assert (last.ts, last.kind, last.object_id) == (NOON + SECOND, "job", claim.key.job_id)
    assert last.details == {
        "claim_token": 1,
        "attempts": 1,
        "worker_id": None,
        "last_worker_id": "w1",
        "failure_class": "job_error",
    }


@pytest.mark.parametrize("statements", [0, 1, 2])
def test_a1_what_was_undone_left_no_trace(services: Services, fuse: Fuse, statements: int) -> None:
    """The audit row is written by the move itself, in the same transaction."""
    claim = a_claim(services)
    before = find_history(services, claim.key.job_id)
    with fuse.blown_after(statements):
        fail_job(services, claim.key, BROKEN)
    assert find_history(services, claim.key.job_id) == before
    assert replayed(services, claim.key.job_id) == find_job(services, claim.key.job_id).status == JobStatus.CLAIMED


def test_a_job_nobody_knows_has_no_history(services: Services) -> None:
    assert (find_history(services, JobId("none")), find_attempts(services, JobId("none"))) == ([], [])


def a_long_life(services: Services, clock: MovingClock) -> JobId:
    worker = a_worker(services)
    job_id = a_job(services, agent="studio", delay=DAY)
    clock.advance(DAY)
    stage_due_jobs(services)
    claim = claimed(services, worker)
    start_job(services, claim.key, who="worker:w1")
    fail_job(services, claim.key, BROKEN, who="worker:w1")
    clock.advance(DAY)
    stage_due_jobs(services)
    claimed(services, worker)
    clock.advance(DAY)
    expire_claims(services)
    fail_job(services, claimed(services, worker).key, HOPELESS, who="worker:w1")
    requeue_job(services, job_id, who="ann")
    claim = claimed(services, worker)
    cancel_job(services, job_id, who="ann")
    complete_job(services, claim.key, who="worker:w1")
    return job_id
