"""Who is next in the queue: priority first, but nobody waits for ever; delayed jobs wait for their time."""

from datetime import timedelta, timezone
from uuid import uuid4

import pytest

from herdsman.context import Services
from herdsman.ids import JobId
from herdsman.jobs.commands import find_job, submit_jobs
from herdsman.jobs.model import NewJob
from herdsman.jobs.sql import BATCH
from herdsman.jobs.sweep import stage_due_jobs
from herdsman.jobs.worker_commands import complete_job
from herdsman.states import JobStatus, Reason
from tests.support.builders import a_job, a_worker, replayed
from tests.support.databases import NOON, MovingClock
from tests.support.worker_calls import claim_job

pytestmark = pytest.mark.usefixtures("stopped_clock")
MINUTE = timedelta(minutes=1)


def test_of_equals_the_first_to_come_is_served_first(services: Services, clock: MovingClock) -> None:
    names = [named(services, name, clock) for name in ("c", "a", "b")]
    assert served(services) == names


def test_a_higher_priority_goes_first(services: Services, clock: MovingClock) -> None:
    for name, priority in (("low", -1), ("usual", 0), ("high", 5)):
        named(services, name, clock, priority=priority)
    assert served(services) == ["high", "usual", "low"]


def test_a_point_of_priority_is_a_head_start_of_one_step_and_no_more(services: Services, clock: MovingClock) -> None:
    a_job(services, job_id=JobId("waiting"), priority=0)
    clock.advance(3 * MINUTE - timedelta(microseconds=1))
    a_job(services, job_id=JobId("overtakes"), priority=3)
    clock.advance(timedelta(microseconds=2))
    a_job(services, job_id=JobId("comes-late"), priority=3)
    assert served(services) == ["overtakes", "waiting", "comes-late"]


def test_the_jobs_of_a_batch_are_served_in_the_order_they_were_sent(services: Services) -> None:
    names = [JobId(name) for name in ("z", "m", "a", "k")]
    submit_jobs(services, [NewJob(type="demo", job_id=name) for name in names])
    assert served(services) == names


def test_a_delayed_job_waits_for_its_time(services: Services, clock: MovingClock) -> None:
    """J9"""
    job_id = a_job(services, delay=timedelta(hours=1))
    job = find_job(services, job_id)
    assert (job.status, job.run_at) == (JobStatus.SCHEDULED, NOON + timedelta(hours=1))
    clock.advance(timedelta(hours=1) - timedelta(microseconds=1))
    assert (stage_due_jobs(services), served(services)) == (0, [])
    clock.advance(timedelta(microseconds=1))
    assert stage_due_jobs(services) == 1
    assert (find_job(services, job_id).reason, served(services)) == (Reason.DUE, [job_id])
    assert replayed(services, job_id) == JobStatus.DONE


def test_a_time_of_day_may_be_given_in_any_zone(services: Services) -> None:
    tokyo = timezone(timedelta(hours=9))
    job_id = a_job(services, run_at=(NOON + MINUTE).astimezone(tokyo))
    assert find_job(services, job_id).run_at == NOON + MINUTE


def test_a_time_in_the_past_buys_no_place_at_the_head(services: Services, clock: MovingClock) -> None:
    first = named(services, "first", clock)
    late = a_job(services, job_id=JobId("late"), run_at=NOON - timedelta(days=1))
    assert find_job(services, late).status is JobStatus.PENDING
    assert served(services) == [first, late]


def test_a_delayed_job_takes_its_place_by_when_it_became_due(services: Services, clock: MovingClock) -> None:
    a_job(services, job_id=JobId("delayed"), delay=MINUTE)
    clock.advance(2 * MINUTE)
    a_job(services, job_id=JobId("came-later"))
    stage_due_jobs(services)
    assert served(services) == ["delayed", "came-later"]


def test_staging_goes_through_everything_that_is_due(services: Services, clock: MovingClock) -> None:
    many = BATCH + 20
    submit_jobs(services, [NewJob(type="demo", delay=MINUTE) for _ in range(many)])
    a_job(services, job_id=JobId("later"), delay=2 * MINUTE)
    clock.advance(MINUTE)
    assert stage_due_jobs(services) == many
    assert stage_due_jobs(services) == 0
    assert find_job(services, JobId("later")).status is JobStatus.SCHEDULED


def named(services: Services, name: str, clock: MovingClock, **wanted: object) -> JobId:
    """A job that comes a little later than the one before."""
    clock.advance(timedelta(microseconds=10))
    return a_job(services, job_id=JobId(name), **wanted)


def served(services: Services) -> list[JobId]:
    """Everything that can be claimed now, in the order in which one worker gets it."""
    worker = a_worker(services, uuid4().hex)
    names: list[JobId] = []
    while claim := claim_job(services, worker):
        names.append(claim.key.job_id)
        complete_job(services, claim.key)
    return names
