"""Requeueing many ended jobs by what they have in common."""

import pytest

from herdsman.context import Services
from herdsman.errors import InvalidRequest
from herdsman.ids import PoolId
from herdsman.jobs.commands import find_job, requeue_jobs
from herdsman.jobs.model import FailureClass, JobFilter
from herdsman.states import JobState
from tests.support.builders import an_ended_job

DEAD = JobFilter(states=(JobState.DEAD_LETTER,))


def test_many_are_requeued_by_what_they_have_in_common(services: Services) -> None:
    matching = an_ended_job(
        services,
        JobState.DEAD_LETTER,
        "w1",
        type="render",
        tags=("x", "y"),
        agent="ann",
        pool=PoolId("default"),
    )
    others = [
        an_ended_job(services, JobState.DEAD_LETTER, "w2", type="other", tags=("x",), agent="ann"),
        an_ended_job(services, JobState.DEAD_LETTER, "w3", type="render", tags=("y",), agent="ann"),
        an_ended_job(services, JobState.DEAD_LETTER, "w4", type="render", tags=("x",), agent="bob"),
        an_ended_job(services, JobState.DONE, "w5", type="render", tags=("x",), agent="ann"),
    ]
    wanted = JobFilter(
        states=DEAD.states,
        type="render",
        tag="x",
        agent="ann",
        pool=PoolId("default"),
        failure_class=FailureClass.USER_ERROR,
    )
    assert requeue_jobs(services, wanted) == 1
    assert find_job(services, matching).state is JobState.PENDING
    assert all(find_job(services, job_id).state is not JobState.PENDING for job_id in others)


def test_a_requeue_of_many_stops_at_its_limit_and_goes_on_from_there(services: Services) -> None:
    for number in range(5):
        an_ended_job(services, JobState.DEAD_LETTER, f"w{number}")
    assert [requeue_jobs(services, DEAD, limit=3) for _ in range(3)] == [3, 2, 0]


def test_a_requeue_of_many_must_say_which_ended_jobs_it_means(services: Services) -> None:
    for wanted in (JobFilter(), JobFilter(states=(JobState.DONE, JobState.RUNNING))):
        with pytest.raises(InvalidRequest, match="states may be cancelled, dead_letter, done"):
            requeue_jobs(services, wanted)
    with pytest.raises(InvalidRequest, match="limit is 0: it must be from 1 to 10000"):
        requeue_jobs(services, DEAD, limit=0)
