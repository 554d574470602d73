"""The functions of the view `tasks` live by the rules of the commands: ends, delays, tokens, filters."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from herdsman.context import Services
from herdsman.ids import JobId
from herdsman.jobs.commands import cancel_job, find_attempts, find_history, find_job
from herdsman.jobs.model import RetryPolicy
from herdsman.jobs.rules import STATUS_NAMES, TASK_STATUS, backoff, place, states_of
from herdsman.jobs.sweep import stage_due_jobs
from herdsman.jobs.worker_commands import LONGEST_ERROR, fail_job
from herdsman.states import JOB, JobStatus
from tests.contract.tasks_sql import Face, in_transactions
from tests.support.builders import BROKEN, a_job, a_worker, claimed, replayed, sql
from tests.support.databases import Backend, MovingClock, ServerDatabases
from tests.support.rows import row_in_state
from tests.support.worker_calls import claim_job

PLAIN = replace(RetryPolicy(), jitter=0)
SECOND = timedelta(seconds=1)
LATER = timedelta(days=1)


@pytest.fixture
def backend(server: ServerDatabases) -> Backend:
    return server


@pytest.fixture
def face(services: Services) -> Face:
    return in_transactions(services.database)


@pytest.mark.parametrize(
    ("wanted", "policy"),
    [
        ({}, PLAIN),
        ({"priority": 7, "retry_base": 2 * SECOND}, replace(PLAIN, base=2 * SECOND)),
        ({"priority": -7, "retry_base": 7 * SECOND, "retry_cap": 9 * SECOND}, replace(PLAIN, base=7 * SECOND, cap=9 * SECOND)),
        ({"retry_base": 600 * SECOND}, replace(PLAIN, base=600 * SECOND, cap=600 * SECOND)),
    ],
)  # fmt: skip
def test_a_failed_task_waits_as_long_as_a_failed_job(
    services: Services, face: Face, clock: MovingClock, wanted: dict[str, Any], policy: RetryPolicy
) -> None:
    worker = a_worker(services)
    job_id = a_job(services, max_attempts=9, **wanted)
    for attempt in range(1, 8):
        face.must_claim(worker)
        face.fail(job_id)
        job = find_job(services, job_id)
        plain = backoff(job_id, attempt, policy)
        assert plain <= job.run_at - job.updated_at <= plain * (1 + RetryPolicy().jitter) + SECOND
        assert job.place == place(job.run_at, job.priority, services.policy.priority_step)
        clock.advance(LATER)
        stage_due_jobs(services)


def test_what_a_failure_writes_is_what_the_command_writes(services: Services, face: Face) -> None:
    """Two twins, one ended by each; only the moment and the share of chance in the delay may differ."""
    by_sql, by_command = a_job(services, job_id="sql"), a_job(services, job_id="command")
    face.must_claim(a_worker(services, "w1"))
    claim = claimed(services, a_worker(services, "w2"))
    face.fail(by_sql, BROKEN.error)
    fail_job(services, claim.key, BROKEN)
    assert same(services, by_sql) == same(services, by_command)


def same(services: Services, job_id: JobId) -> list[Any]:
    job = find_job(services, job_id)
    one = (job.status, job.reason, job.attempts, job.interruptions, job.worker_losses, job.failure_class)
    entries = [(entry.event_type, entry.reason, entry.seq) for entry in find_history(services, job_id)]
    tried = [(each.attempt, each.outcome, each.error) for each in find_attempts(services, job_id)]
    return [one, job.last_error, job.finished_at, entries, tried]


def test_what_sql_did_is_signed_with_the_worker(services: Services, face: Face) -> None:
    worker = a_worker(services)
    job_id = a_job(services)
    face.must_claim(worker)
    face.complete(job_id)
    assert [entry.actor for entry in find_history(services, job_id)][1:] == ["sql:w1", "sql:w1"]
    assert replayed(services, job_id) == JobStatus.DONE


def test_a_cancelled_task_of_a_lost_worker_is_cancelled(services: Services, face: Face) -> None:
    worker = a_worker(services)
    job_id = a_job(services)
    face.must_claim(worker)
    cancel_job(services, job_id)
    assert face.reset(worker) == 1
    assert find_job(services, job_id).status is JobStatus.CANCELLED


def test_an_old_token_ends_nothing(services: Services, face: Face) -> None:
    """J3: with the token of its claim a worker cannot touch the claim of another."""
    first, second = a_worker(services, "first"), a_worker(services, "second")
    job_id = a_job(services, max_attempts=9)
    old = face.must_claim(first)["claim_token"]
    face.reset(first)
    new = face.must_claim(second)["claim_token"]
    for name, said in (("task_face_complete", "complete"), ("task_face_fail", "fail")):
        with pytest.raises(Exception, match=f"In Progress with claim {new}, you cannot {said} it"):
            value(services, f"SELECT {name}('{job_id}', {old}, NULL)")
    assert find_job(services, job_id).worker_id == second
    assert value(services, f"SELECT task_face_complete('{job_id}', {new}, '1')") == "Complete"
    with pytest.raises(Exception, match="is Complete with claim"):
        value(services, f"SELECT task_face_complete('{job_id}', {old}, '1')")


def value(services: Services, asked: str) -> Any:
    return services.database.transact(lambda tx: tx.execute(text(asked)).scalar())


@pytest.mark.parametrize("status", STATUS_NAMES)
def test_tasks_are_listed_by_status_oldest_first(services: Services, face: Face, status: str) -> None:
    for state in JobStatus:
        for number in (1, 2):
            row_in_state(services.database, JOB, state, f"{state}-{number}")
    wanted = states_of(status)
    assert [row["id"] for row in face.by_status(status)] == [
        f"{state}-{number}" for state in wanted for number in (1, 2)
    ]
    assert {row["status"] for row in face.by_status(status)} == {TASK_STATUS[wanted[0]]}


@pytest.mark.parametrize("status", ["queued", "", "done", None])
def test_a_status_that_is_none_is_refused(face: Face, status: Any) -> None:
    with pytest.raises(Exception, match="is no status of a task"):
        face.by_status(status)


def test_an_error_is_cut_as_the_command_cuts_it(services: Services, face: Face) -> None:
    job_id = a_job(services)
    face.must_claim(a_worker(services))
    face.fail(job_id, "x" * (LONGEST_ERROR + 1))
    assert find_job(services, job_id).last_error == "x" * LONGEST_ERROR


def test_odd_words_stay_words(services: Services, face: Face) -> None:
    job_id = a_job(services)
    face.must_claim(a_worker(services))
    face.fail(job_id, "'; DROP TABLE workers; -- \\ % 🐑")
    assert find_job(services, job_id).last_error == "'; DROP TABLE workers; -- \\ % 🐑"


def test_names_are_compared_letter_by_letter(services: Services, face: Face) -> None:
    a_worker(services, "Worker")
    a_job(services, job_id="Job")
    assert [face.claim(name) for name in ("worker", "Worker ", "WORKER")] == [None] * 3
    face.must_claim("Worker")
    with pytest.raises(Exception, match="there is no task job"):
        face.complete("job")
    assert claim_job(services, a_worker(services, "worker")) is None


@pytest.mark.parametrize("scope", ["all", "pool:default", "type:demo"])
def test_what_is_paused_is_not_claimed_through_sql(services: Services, face: Face, scope: str) -> None:
    worker = a_worker(services)
    a_job(services)
    paused = (
        "INSERT INTO orchestrator_holds (scope, kind, reason, actor, since) VALUES (:scope, 'pause', '', 'me', :at)"
    )
    sql(services.database, paused, scope=scope, at=datetime.now(UTC).replace(tzinfo=None))
    assert face.claim(worker) is None
    sql(services.database, "DELETE FROM orchestrator_holds")
    assert face.claim(worker) is not None


def test_jobs_that_share_a_key_are_left_to_the_api(services: Services, face: Face) -> None:
    """How many of them may run is in the policy, which no function reads."""
    worker = a_worker(services)
    a_job(services, concurrency_key="k")
    assert face.claim(worker) is None
    assert claim_job(services, worker) is not None
