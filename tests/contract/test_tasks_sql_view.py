"""The view shows every job by the names of its statuses, on all three databases."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from herdsman.context import Services
from herdsman.db.connection import records
from herdsman.db.tasks_sql import PUBLIC
from herdsman.ids import JobId
from herdsman.jobs.commands import find_job
from herdsman.jobs.rules import STATUS_NAMES, TASK_STATUS, states_of
from herdsman.jobs.worker_commands import complete_job, fail_job, start_job
from herdsman.states import HELD, JOB, JobStatus
from tests.docs.pages import page, table
from tests.support.builders import BROKEN, a_claim, a_job, scalar
from tests.support.databases import MovingClock
from tests.support.rows import HOLDER, row_in_state

PAGE = page("docs/reference/tasks.md")


def shown(services: Services, job_id: JobId) -> dict[str, Any]:
    asked = text("SELECT * FROM tasks WHERE id = :id").bindparams(id=job_id)
    (row,) = services.database.read(lambda tx: records(tx, asked))
    return {name: instant(value) if name.endswith("_at") else value for name, value in row.items()}


def instant(value: Any) -> datetime | None:
    """Of a view each driver gives what the database stores: SQLite text, MariaDB UTC without a zone."""
    if value is None:
        return None
    parsed = datetime.fromisoformat(value) if isinstance(value, str) else value
    return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)


@pytest.mark.parametrize("state", JobStatus)
def test_each_state_is_shown_by_its_name_and_found_by_it(services: Services, state: JobStatus) -> None:
    row_in_state(services.database, JOB, state)
    row = shown(services, JobId("x"))
    assert row["status"] == TASK_STATUS[state]
    assert state in states_of(row["status"])
    assert row["worker_id"] == (f"{HOLDER}-x" if state in HELD else None)
    query = "SELECT COUNT(*) FROM tasks WHERE status = :status"
    assert scalar(services.database, query, status=TASK_STATUS[state]) == 1


def test_what_is_shown_is_what_the_job_has(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services, payload={"n": 1})
    clock.advance(timedelta(seconds=5))
    job_id = claim.key.job_id
    row = shown(services, job_id)
    assert row["generation_started_at"] == find_job(services, job_id).claimed_at
    start_job(services, claim.key)
    assert shown(services, job_id)["generation_started_at"] == find_job(services, job_id).started_at
    complete_job(services, claim.key, {"n": 2})
    row, job = shown(services, job_id), find_job(services, job_id)
    assert (row["task_type"], row["attempts"], row["error_message"]) == ("demo", 1, None)
    assert (row["created_at"], row["updated_at"]) == (job.created_at, job.updated_at)
    assert (row["generation_processed_at"], row["next_attempt_at"]) == (job.finished_at, None)
    assert ("1" in row["params"], "2" in row["result"]) == (True, True)


def test_c_06_an_error_says_when_it_is_tried_again(services: Services) -> None:
    claim = a_claim(services)
    fail_job(services, claim.key, BROKEN)
    row, job = shown(services, claim.key.job_id), find_job(services, claim.key.job_id)
    assert (row["status"], row["error_message"]) == ("Error", BROKEN.error)
    assert (row["next_attempt_at"], row["generation_processed_at"]) == (job.run_at, job.updated_at)


def test_a_task_that_waits_for_its_time_is_queued_and_says_so(services: Services) -> None:
    job_id = a_job(services, delay=timedelta(hours=1))
    row = shown(services, job_id)
    assert (row["status"], row["next_attempt_at"]) == ("Queued", find_job(services, job_id).run_at)
    assert shown(services, a_job(services))["next_attempt_at"] is None


def test_the_page_lists_the_columns_the_names_and_the_functions(services: Services) -> None:
    found = services.database.read(lambda tx: list(tx.execute(text("SELECT * FROM tasks")).keys()))
    assert found == [row[0] for row in table(PAGE.section("The view"))]
    names = [(row[0], row[1].split(", ")) for row in table(PAGE.section("Names"))]
    expected = [(name, [state.value for state in states_of(name)]) for name in STATUS_NAMES]
    assert names == expected
    assert sorted(row[0].partition("(")[0] for row in table(PAGE.section("Functions"))) == sorted(PUBLIC)
