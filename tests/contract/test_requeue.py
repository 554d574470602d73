"""Running a job that has ended once more, because a person says so."""

from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import InvalidRequest, NotFound, TooLarge
from herdsman.ids import JobId
from herdsman.jobs.commands import (
    cancel_job,
    find_attempts,
    find_history,
    find_job,
    requeue_edited_job,
    requeue_job,
    submit_job,
)
from herdsman.jobs.model import NewJob, Submitted
from herdsman.jobs.worker_commands import (
    Finish,
    complete_job,
    fail_job,
    release_job,
    report_progress,
    start_job,
)
from herdsman.states import JobStatus, Reason
from tests.support.builders import BROKEN, a_claim, a_job, a_worker, an_ended_job, claimed, replayed, sql
from tests.support.databases import NOON, MovingClock

ENDS = (JobStatus.DONE, JobStatus.DEAD_LETTER, JobStatus.CANCELLED)


@pytest.mark.parametrize("end", ENDS)
def test_j6_an_ended_job_runs_again_with_a_clean_slate(services: Services, clock: MovingClock, end: JobStatus) -> None:
    job_id = ended(services, end)
    clock.stop(at=NOON)
    token = find_job(services, job_id).claim_token
    requeue_job(services, job_id, who="ann")
    job = find_job(services, job_id)
    assert (job.status, job.reason, job.run_at) == (JobStatus.PENDING, Reason.REQUEUED, NOON)
    assert job.claim_token == token + 1
    assert (job.attempts, job.interruptions, job.worker_losses, job.out_of_memory) == (0, 0, 0, 0)
    assert (job.result, job.finished_at, job.cancel_requested_at) == (None, None, None)
    assert (job.failure_class, job.last_error, job.progress, job.started_at) == (None, None, None, None)
    assert find_history(services, job_id)[-1].actor == "ann"
    again = claimed(services, a_worker(services, "again"))
    assert (again.key.job_id, again.attempt) == (job_id, 1)
    assert complete_job(services, again.key) is Finish.DONE
    assert replayed(services, job_id) == JobStatus.DONE


def test_the_attempts_of_before_stay_on_record(services: Services) -> None:
    job_id = an_ended_job(services, JobStatus.DEAD_LETTER)
    requeue_job(services, job_id)
    complete_job(services, claimed(services, a_worker(services, "again")).key)
    outcomes = [(attempt.attempt, attempt.outcome) for attempt in find_attempts(services, job_id)]
    assert outcomes == [(1, "dead_letter"), (1, "done")]


def test_a_requeue_may_bring_a_new_payload(services: Services) -> None:
    job_id = an_ended_job(services, JobStatus.DEAD_LETTER, payload={"model": "old"})
    requeue_edited_job(services, job_id, {"model": "new"})
    job = find_job(services, job_id)
    assert (job.payload, job.reason) == ({"model": "new"}, Reason.REQUEUED_EDITED)
    assert claimed(services, a_worker(services, "again")).payload == {"model": "new"}


def test_a_lost_submission_is_still_recognised_after_an_edit(services: Services) -> None:
    """J2"""
    job_id = an_ended_job(services, JobStatus.DONE, payload=1, job_id=JobId("j"))
    requeue_edited_job(services, job_id, 2)
    assert submit_job(services, NewJob(type="demo", payload=1, job_id=JobId("j"))) == Submitted(job_id, created=False)


def test_a_requeue_with_a_payload_that_cannot_be_kept_is_refused(services: Services) -> None:
    job_id = an_ended_job(services, JobStatus.DONE)
    with pytest.raises(TooLarge):
        requeue_edited_job(services, job_id, "x" * services.policy.max_payload_bytes)
    with pytest.raises(InvalidRequest):
        requeue_edited_job(services, job_id, {"x": float("inf")})
    assert find_job(services, job_id).status is JobStatus.DONE


def test_a_requeued_job_starts_anew_on_an_external_service(services: Services) -> None:
    """Its earlier self has ended there, and with another payload it would be the wrong one."""
    job_id = an_ended_job(services, JobStatus.DONE)
    sql(services.database, "UPDATE job_states SET service_job_id = 's1', service_status = 'done'")
    requeue_job(services, job_id)
    assert claimed(services, a_worker(services, "again")).service_job_id is None


@pytest.mark.parametrize(
    "state", [JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.CLAIMED, JobStatus.RUNNING, JobStatus.FAILED]
)
def test_a_job_that_has_not_ended_cannot_be_requeued(services: Services, state: JobStatus) -> None:
    job_id = not_ended(services, state)
    before = find_job(services, job_id)
    with pytest.raises(InvalidRequest, match=f"is {state}: only a job that has ended can be requeued"):
        requeue_job(services, job_id)
    assert find_job(services, job_id) == before


def test_there_must_be_a_job_to_requeue(services: Services) -> None:
    with pytest.raises(NotFound, match="there is no job 'none'"):
        requeue_job(services, JobId("none"))


def ended(services: Services, end: JobStatus) -> JobId:
    """With everything filled in that a first life leaves behind."""
    claim = a_claim(services)
    start_job(services, claim.key)
    report_progress(services, claim.key, 0.5, "half")
    release_job(services, claim.key, "drained")
    claim = claimed(services, claim.worker_id)
    if end is JobStatus.CANCELLED:
        cancel_job(services, claim.key.job_id)
    if end is JobStatus.DEAD_LETTER:
        sql(services.database, "UPDATE job_bodies SET max_attempts = 1")
        fail_job(services, claim.key, BROKEN)
    else:
        complete_job(services, claim.key, "result")
    assert find_job(services, claim.key.job_id).status is end
    return claim.key.job_id


def not_ended(services: Services, state: JobStatus) -> JobId:
    if state is JobStatus.SCHEDULED:
        return a_job(services, delay=timedelta(hours=1))
    if state is JobStatus.PENDING:
        return a_job(services)
    claim = a_claim(services)
    if state is JobStatus.RUNNING:
        start_job(services, claim.key)
    if state is JobStatus.FAILED:
        fail_job(services, claim.key, BROKEN)
    return claim.key.job_id
