"""What a worker says while it holds a job: it has begun, it lives, it gets on."""

from datetime import datetime, timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import InvalidRequest, NotFound, StaleWrite
from herdsman.fleet import workers_sql
from herdsman.fleet.commands import move_worker, register_worker
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.commands import cancel_job, find_attempts, find_history, find_job
from herdsman.jobs.model import ClaimKey
from herdsman.jobs.worker_commands import release_job, report_progress, start_job
from herdsman.states import JobStatus, Reason, WorkerStatus
from tests.support.builders import a_claim, a_worker, claimed
from tests.support.databases import NOON, MovingClock
from tests.support.worker_calls import Beat, beat

pytestmark = pytest.mark.usefixtures("stopped_clock")
LATER = timedelta(seconds=20)


def test_a_started_job_is_running_and_its_deadline_begins_anew(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services, timeout=timedelta(minutes=1))
    clock.advance(LATER)
    start_job(services, claim.key)
    job = find_job(services, claim.key.job_id)
    assert (job.status, job.reason, job.started_at) == (JobStatus.RUNNING, Reason.STARTED, NOON + LATER)
    assert job.deadline_at == NOON + LATER + timedelta(minutes=1)
    assert find_attempts(services, claim.key.job_id)[0].started_at == NOON + LATER


def test_a_job_without_a_timeout_has_no_deadline(services: Services) -> None:
    claim = a_claim(services)
    start_job(services, claim.key)
    assert find_job(services, claim.key.job_id).deadline_at is None


def test_starting_twice_is_harmless(services: Services, clock: MovingClock) -> None:
    """The answer to the first request may have been lost."""
    claim = a_claim(services)
    start_job(services, claim.key)
    before = find_job(services, claim.key.job_id)
    clock.advance(LATER)
    start_job(services, claim.key)
    assert find_job(services, claim.key.job_id) == before


def test_a_beat_keeps_worker_and_claim_alive_and_is_no_step(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services)
    before = find_job(services, claim.key.job_id)
    clock.advance(LATER)
    expected = NOON + LATER + services.policy.claim_ttl
    assert beat(services, claim.worker_id, claim.key) == Beat(expires_at=expected, cancel=False, drain=False)
    job = find_job(services, claim.key.job_id)
    assert (job.claim_expires_at, job.version) == (expected, before.version)
    assert len(find_history(services, claim.key.job_id)) == before.version
    assert last_heartbeat(services, claim.worker_id) == NOON + LATER


def test_two_beats_at_one_instant_are_both_accepted(services: Services) -> None:
    """A database that counts changed rows and not found ones would take the second for a stale one."""
    claim = a_claim(services)
    assert beat(services, claim.worker_id, claim.key) == beat(services, claim.worker_id, claim.key)


def test_a_worker_without_a_job_beats_for_itself(services: Services) -> None:
    worker = WorkerId("w1")
    register_worker(services, worker)
    assert last_heartbeat(services, worker) is None
    beat(services, worker)
    assert last_heartbeat(services, worker) == NOON


def test_a_beat_brings_back_what_the_worker_must_do(services: Services) -> None:
    claim = a_claim(services)
    cancel_job(services, claim.key.job_id)
    move_worker(services, claim.worker_id, WorkerStatus.TERMINATING, Reason.DRAINED)
    answer = beat(services, claim.worker_id, claim.key)
    assert (answer.cancel, answer.drain) == (True, True)


@pytest.mark.parametrize("end", [WorkerStatus.ERROR, WorkerStatus.TERMINATED])
def test_a_worker_that_was_given_up_is_told_to_exit(services: Services, end: WorkerStatus) -> None:
    worker = a_worker(services)
    move_worker(services, worker, WorkerStatus.ERROR, Reason.LOST)
    if end is WorkerStatus.TERMINATED:
        move_worker(services, worker, WorkerStatus.TERMINATED, Reason.STOPPED)
    with pytest.raises(StaleWrite, match=f"worker 'w1' is {end}: stop its handler and exit"):
        beat(services, worker)
    assert last_heartbeat(services, worker) is None


def test_an_unknown_worker_is_told_so(services: Services) -> None:
    with pytest.raises(NotFound, match="there is no worker 'nobody'"):
        beat(services, WorkerId("nobody"))


def test_progress_is_kept_and_renews_the_claim(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services)
    clock.advance(LATER)
    report_progress(services, claim.key, 0.25, "loading " + "x" * 300)
    job = find_job(services, claim.key.job_id)
    assert (job.progress, job.progress_at) == (0.25, NOON + LATER)
    assert job.progress_note == ("loading " + "x" * 300)[:255]
    assert job.claim_expires_at == NOON + LATER + services.policy.claim_ttl


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), float("inf")])
def test_progress_is_a_share(services: Services, share: float) -> None:
    claim = a_claim(services)
    with pytest.raises(InvalidRequest, match=r"progress is .*: it must be from 0 to 1"):
        report_progress(services, claim.key, share)


def test_a_new_claim_begins_without_the_old_one_s_progress(services: Services) -> None:
    claim = a_claim(services)
    start_job(services, claim.key)
    report_progress(services, claim.key, 0.9, "almost")
    release_job(services, claim.key, "drained")
    job = find_job(services, claimed(services, claim.worker_id).key.job_id)
    assert (job.progress, job.progress_note, job.progress_at, job.started_at) == (None, None, None, None)


def test_a_claim_on_no_job_is_not_found(services: Services) -> None:
    nothing = ClaimKey(JobId("none"), 1)
    worker = a_worker(services)
    for word in (
        lambda: start_job(services, nothing),
        lambda: report_progress(services, nothing, 0.5),
        lambda: beat(services, worker, nothing),
    ):
        with pytest.raises(NotFound, match="there is no job 'none'"):
            word()


def last_heartbeat(services: Services, worker_id: WorkerId) -> datetime | None:
    return services.database.read(lambda tx: workers_sql.get_worker(tx, worker_id)).last_heartbeat
