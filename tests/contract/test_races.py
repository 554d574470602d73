"""Two who want different things of one job: one of them wins, and both are told the truth."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import HerdsmanError, InvalidRequest, StaleWrite
from herdsman.jobs.commands import cancel_job, find_history, find_job, requeue_job, submit_jobs
from herdsman.jobs.model import NewJob
from herdsman.jobs.sweep import prune
from herdsman.jobs.worker_commands import Finish, complete_job, fail_job, release_job
from herdsman.states import JobStatus
from tests.support.builders import BROKEN, a_claim, an_ended_job, replayed, scalar, sql
from tests.support.databases import MovingClock
from tests.support.threads import at_once

ROUNDS = 15


def test_j7_a_cancel_and_a_result_at_once(services: Services) -> None:
    """If the cancel was acknowledged first, the job is never done; if the result came first, it stays done."""
    for number in range(ROUNDS):
        claim = a_claim(services, f"w{number}")
        answers = at_once(
            2,
            lambda which, claim=claim: (
                cancel_job(services, claim.key.job_id) if which else complete_job(services, claim.key, "r")
            ),
        )
        finish, cancel = answers
        state = find_job(services, claim.key.job_id).status
        assert (finish, cancel, state) in {
            (Finish.DONE, JobStatus.DONE, JobStatus.DONE),
            (Finish.CANCELLED, JobStatus.CLAIMED, JobStatus.CANCELLED),
        }
        assert replayed(services, claim.key.job_id) == state


def test_j3_of_many_results_at_once_one_is_stored(services: Services) -> None:
    for number in range(ROUNDS):
        claim = a_claim(services, f"w{number}")
        answers = at_once(4, lambda which, claim=claim: complete_job(services, claim.key, which))
        assert answers == [Finish.DONE] * 4
        assert [entry.to_status for entry in find_history(services, claim.key.job_id)].count("done") == 1


def test_j3_of_different_ends_at_once_one_is_stored(services: Services) -> None:
    for number in range(ROUNDS):
        claim = a_claim(services, f"w{number}")
        ends: list[Callable[[], object]] = [
            lambda claim=claim: fail_job(services, claim.key, BROKEN),
            lambda claim=claim: release_job(services, claim.key, "drained"),
            lambda claim=claim: complete_job(services, claim.key),
        ]
        answers = at_once(3, lambda which, ends=ends: outcome(ends[which]))
        assert answers.count(StaleWrite) == 2
        assert find_job(services, claim.key.job_id).version == 3
        if find_job(services, claim.key.job_id).status is JobStatus.PENDING:
            cancel_job(services, claim.key.job_id)


def test_j6_of_two_requeues_at_once_one_happens(services: Services) -> None:
    for number in range(ROUNDS):
        job_id = an_ended_job(services, JobStatus.DONE, f"w{number}")
        answers = at_once(2, lambda _, job_id=job_id: outcome(lambda: requeue_job(services, job_id)))
        assert sorted(map(str, answers)) == sorted(map(str, [None, InvalidRequest]))
        assert find_job(services, job_id).claim_token == 2
        cancel_job(services, job_id)


def test_two_pruners_at_once_remove_each_job_once(services: Services, clock: MovingClock) -> None:
    submit_jobs(services, [NewJob(type="demo", tags=("x",)) for _ in range(1000)])
    ended = "UPDATE job_states SET status = 'cancelled', finished_at = updated_at, version = version + 1"
    assert sql(services.database, ended) == 1000
    clock.advance(timedelta(days=31))
    assert sum(at_once(2, lambda _: prune(services))) == 1000
    assert scalar(services.database, "SELECT COUNT(*) FROM orchestrator_jobs") == 0


@pytest.mark.parametrize("cancels", [2, 5])
def test_many_cancels_at_once_are_one_step(services: Services, cancels: int) -> None:
    claim = a_claim(services)
    answers = at_once(cancels, lambda _: cancel_job(services, claim.key.job_id))
    assert answers == [JobStatus.CLAIMED] * cancels
    assert find_job(services, claim.key.job_id).version == 3


def outcome(ask: Callable[[], object]) -> type[HerdsmanError] | None:
    try:
        ask()
    except HerdsmanError as error:
        return type(error)
    return None
