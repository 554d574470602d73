"""Many jobs in one request: all of them or none, in the order they were sent."""

import pytest

from herdsman.context import Services
from herdsman.errors import Conflict, InvalidRequest, TooLarge
from herdsman.ids import JobId
from herdsman.jobs.commands import find_job, list_jobs, submit_jobs
from herdsman.jobs.model import NewJob, Submitted
from herdsman.jobs.sql import LARGEST_BATCH
from tests.support.builders import a_job, scalar

ID = JobId("job-1")


def test_a_batch_keeps_its_order_and_answers_for_each(services: Services) -> None:
    a_job(services, job_id=JobId("b"))
    news = [NewJob(type="demo", job_id=JobId(name)) for name in ("a", "b", "c", "a")]
    assert submit_jobs(services, news) == [
        Submitted(JobId("a"), created=True),
        Submitted(JobId("b"), created=False),
        Submitted(JobId("c"), created=True),
        Submitted(JobId("a"), created=False),
    ]
    assert find_job(services, JobId("a")).place < find_job(services, JobId("c")).place


def test_a_batch_with_one_bad_job_stores_nothing(services: Services) -> None:
    a_job(services, job_id=JobId("taken"), payload=1)
    good = NewJob(type="demo", job_id=JobId("good"), tags=("x",))
    with pytest.raises(Conflict):
        submit_jobs(services, [good, NewJob(type="demo", job_id=JobId("taken"), payload=2)])
    with pytest.raises(InvalidRequest):
        submit_jobs(services, [good, NewJob(type="not a name")])
    assert [job.job_id for job in list_jobs(services).jobs] == ["taken"]
    assert scalar(services.database, "SELECT COUNT(*) FROM job_tags") == 0


def test_two_jobs_of_one_batch_may_not_share_a_name(services: Services) -> None:
    with pytest.raises(Conflict):
        submit_jobs(services, [NewJob(type="demo", job_id=ID, payload=n) for n in (1, 2)])
    with pytest.raises(Conflict):
        submit_jobs(services, [NewJob(type="demo", idempotency_key="k", payload=n) for n in (1, 2)])
    with pytest.raises(Conflict):
        submit_jobs(services, [NewJob(type="demo", idempotency_key="k", job_id=JobId(name)) for name in "ab"])
    with pytest.raises(Conflict):
        submit_jobs(services, [NewJob(type="demo", idempotency_key="k", job_id=name) for name in (None, ID)])
    assert list_jobs(services).jobs == ()


def test_too_much_at_once_is_refused_before_anything_is_written(services: Services) -> None:
    """J10"""
    with pytest.raises(InvalidRequest, match="1001 jobs were sent at once, the limit is 1000"):
        submit_jobs(services, [NewJob(type="demo")] * (LARGEST_BATCH + 1))
    with pytest.raises(TooLarge, match="payload is 1,048,577 bytes, the limit is 1,048,576"):
        a_job(services, payload="x" * (services.policy.max_payload_bytes - 1))
    assert list_jobs(services).jobs == ()


def test_the_largest_batch_and_the_largest_payload_fit(services: Services) -> None:
    answers = submit_jobs(services, [NewJob(type="demo", payload=n) for n in range(LARGEST_BATCH)])
    assert len({answer.job_id for answer in answers}) == LARGEST_BATCH
    text = "\N{GRINNING FACE}" * ((services.policy.max_payload_bytes - 2) // 4)
    assert find_job(services, a_job(services, payload=text)).payload == text


def test_an_empty_batch_is_no_work(services: Services) -> None:
    assert submit_jobs(services, []) == []
