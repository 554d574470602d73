"""Names, tokens and notes that nobody would choose: never a failure of ours (A3)."""

import pytest

from herdsman.context import Services
from herdsman.errors import InvalidRequest, NotFound, StaleWrite
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs.commands import cancel_job, find_attempts, find_job, list_jobs, requeue_job
from herdsman.jobs.model import ClaimKey, JobFilter
from herdsman.jobs.worker_commands import complete_job, fail_job, release_job, report_progress, start_job
from tests.support.builders import BROKEN, a_claim, a_job, a_worker
from tests.support.worker_calls import beat

SQLISH = "'; DROP TABLE orchestrator_jobs; -- \" ` \\ % %s :x ? {} $1 \\0 %(a)s"


ODD_NAMES = ["a\0b", "\ud800", SQLISH, "x" * 10_000, ""]


@pytest.mark.parametrize("name", ODD_NAMES, ids=["nul", "surrogate", "sql", "long", "empty"])
def test_an_odd_name_is_the_name_of_nothing(services: Services, name: str) -> None:
    """A3: bad input is never a failure of ours."""
    job_id, key = JobId(name), ClaimKey(JobId(name), 1)
    worker = a_worker(services)
    for ask in (
        lambda: find_job(services, job_id),
        lambda: cancel_job(services, job_id),
        lambda: requeue_job(services, job_id),
        lambda: start_job(services, key),
        lambda: complete_job(services, key),
        lambda: fail_job(services, key, BROKEN),
        lambda: release_job(services, key, "drained"),
        lambda: beat(services, worker, key),
        lambda: beat(services, WorkerId(name)),
    ):
        with pytest.raises((NotFound, InvalidRequest)):
            ask()


@pytest.mark.parametrize("name", ODD_NAMES, ids=["nul", "surrogate", "sql", "long", "empty"])
def test_a_list_by_an_odd_name_is_empty_or_refused(services: Services, name: str) -> None:
    a_job(services)
    for wanted in (
        JobFilter(type=name),
        JobFilter(agent=name),
        JobFilter(pool=PoolId(name)),
        JobFilter(tag=name),
    ):
        try:
            assert list_jobs(services, wanted).jobs == ()
        except InvalidRequest:
            continue


@pytest.mark.parametrize("token", [0, -1, 2**63, 2**70, -(2**70)])
def test_a_token_of_any_size_is_just_a_wrong_one(services: Services, token: int) -> None:
    claim = a_claim(services)
    with pytest.raises((StaleWrite, InvalidRequest)):
        start_job(services, ClaimKey(claim.key.job_id, token))


@pytest.mark.parametrize("note", ["a\0b", "\ud800", "\U0001f600" * 300])
def test_an_odd_note_does_not_stop_the_work(services: Services, note: str) -> None:
    claim = a_claim(services)
    report_progress(services, claim.key, 0.5, note)
    assert find_job(services, claim.key.job_id).progress == 0.5
    release_job(services, claim.key, note)
    assert find_attempts(services, claim.key.job_id)[0].outcome == "pending"
