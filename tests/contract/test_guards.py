"""What else the databases keep by themselves: the audit, claims, cancellations, and what each state implies."""

from typing import Any

import pytest
from sqlalchemy import null

from herdsman.context import Services
from herdsman.db import guards
from herdsman.db.connection import Database
from herdsman.db.errors import Duplicate, Refused
from herdsman.db.guards import all_guards
from herdsman.db.schema import jobs
from herdsman.jobs.commands import find_job
from herdsman.jobs.worker_commands import complete_job, fail_job
from herdsman.states import JOB, LEASE, POOL, JobStatus, Reason
from tests.support.builders import BROKEN, a_job, a_worker, claimed, scalar, sql
from tests.support.databases import NOON
from tests.support.rows import HOLDER, add_row, move_row, row_in_state

JOBS = "job_states"


def test_a1_the_audit_cannot_be_changed(database: Database) -> None:
    add_row(database, JOB)
    for column, value in (("reason", "'nothing'"), ("ts", "ts"), ("seq", "99"), ("actor", "'somebody else'")):
        with pytest.raises(Refused, match="herdsman: orchestrator_audit is append-only"):
            sql(database, f"UPDATE audit_entries SET {column} = {value}")


def test_a1_the_audit_cannot_be_deleted(database: Database) -> None:
    add_row(database, JOB)
    with pytest.raises(Refused, match="herdsman: orchestrator_audit is append-only"):
        sql(database, "DELETE FROM audit_entries")
    assert scalar(database, "SELECT COUNT(*) FROM orchestrator_audit") > 0


def test_a1_retention_lets_go_of_old_audit_rows_only(database: Database) -> None:
    add_row(database, JOB)
    sql(
        database,
        "INSERT INTO orchestrator_retention VALUES ('audit', :old)",
        old="2020-01-01 00:00:00.000000",
    )
    with pytest.raises(Refused, match="only retention removes old rows"):
        sql(database, "DELETE FROM audit_entries")
    sql(database, "UPDATE orchestrator_retention SET prune_before = :late", late="2999-01-01 00:00:00.000000")
    assert sql(database, "DELETE FROM audit_entries") > 0


def test_a1_there_is_one_audit_row_for_each_step(database: Database) -> None:
    add_row(database, JOB)
    columns = "kind, object_id, seq, ts, status, reason, actor"
    with pytest.raises(Duplicate):
        sql(database, f"INSERT INTO audit_entries ({columns}) SELECT {columns} FROM audit_entries")


@pytest.mark.parametrize("state", sorted(JOB.live))
def test_j1_a_live_job_cannot_be_deleted(database: Database, state: JobStatus) -> None:
    row_in_state(database, JOB, state)
    with pytest.raises(Refused, match="an accepted job is not deleted before it has ended"):
        sql(database, f"DELETE FROM {JOBS}")
    with pytest.raises((Refused, Duplicate)):
        replace_job(database)
    assert scalar(database, f"SELECT status FROM {JOBS}") == state


def test_j3_the_token_never_falls_and_rises_with_each_claim(database: Database) -> None:
    row_in_state(database, JOB, JobStatus.RUNNING)
    with pytest.raises(Refused, match="claim_token only rises"):
        sql(database, f"UPDATE {JOBS} SET claim_token = claim_token - 1")
    move_row(database, JOB, JobStatus.PENDING)
    for token in (jobs.c.claim_token, jobs.c.claim_token + 2):
        with pytest.raises(Refused, match="claim_token only rises, by one with each claim"):
            move_row(database, JOB, JobStatus.CLAIMED, claim_token=token)


@pytest.mark.parametrize("column", ["claim_token", "attempts"])
def test_a_new_job_has_no_claims(database: Database, column: str) -> None:
    spoiled: dict[str, Any] = {column: 1}
    with pytest.raises(Refused):
        add_row(database, JOB, **spoiled)


def test_j7_a_cancelled_job_is_never_done_even_if_the_request_is_hidden(database: Database) -> None:
    row_in_state(database, JOB, JobStatus.RUNNING)
    asked: dict[str, Any] = {"reason": Reason.CANCEL_REQUESTED.value, "cancel_requested_at": NOON}
    move_row(database, JOB, JobStatus.RUNNING, **asked)
    hiding: tuple[dict[str, Any], ...] = ({}, {"cancel_requested_at": null()})
    for hidden in hiding:
        with pytest.raises(Refused, match=r"a cancelled job is never done|ck_job_states_cancelled"):
            move_row(database, JOB, JobStatus.DONE, **hidden)


@pytest.mark.parametrize(
    ("state", "spoiled"),
    [
        (JobStatus.CLAIMED, {"worker_id": None}),
        (JobStatus.CLAIMED, {"claim_expires_at": None}),
        (JobStatus.CANCELLED, {"finished_at": None}),
        (JobStatus.CANCELLED, {"worker_id": f"{HOLDER}-x"}),
        (JobStatus.CANCELLED, {"claim_expires_at": NOON}),
        (JobStatus.CLAIMED, {"finished_at": NOON}),
        (JobStatus.CLAIMED, {"worker_id": "nobody"}),
        (JobStatus.CLAIMED, {"attempts": -1}),
        (JobStatus.CLAIMED, {"attempts": 2}),
        (JobStatus.CLAIMED, {"progress": 1.5}),
    ],
)
def test_a_state_implies_what_is_known_of_the_job(
    database: Database, state: JobStatus, spoiled: dict[str, Any]
) -> None:
    add_row(database, JOB, status=JobStatus.PENDING)
    with pytest.raises(Refused):
        move_row(database, JOB, state, **spoiled)
    move_row(database, JOB, state)


def test_a_worker_s_name_stands_on_one_job_only(database: Database) -> None:
    row_in_state(database, JOB, JobStatus.CLAIMED, "a")
    add_row(database, JOB, "b", status=JobStatus.PENDING)
    with pytest.raises(Duplicate):
        move_row(database, JOB, JobStatus.CLAIMED, "b", **dict.fromkeys(("worker_id", "last_worker_id"), f"{HOLDER}-a"))


def test_a_priority_out_of_bounds_is_refused(services: Services) -> None:
    a_job(services)
    with pytest.raises(Refused):
        sql(services.database, "UPDATE job_bodies SET priority = 101")


def test_a_body_and_an_end_belong_to_a_job(database: Database) -> None:
    for table, columns, values in (
        ("job_ends", "job_id, claim_token, result", "'nobody', 1, '{}'"),
        ("past_attempts", "job_id, claim_token, attempt, worker_id, pool, claimed_at, ended_at, outcome, reason",
         "'nobody', 1, 1, 'w', 'p', '2020-01-01 00:00:00', '2020-01-01 00:00:00', 'done', 'test'"),
    ):  # fmt: skip
        with pytest.raises(Refused):
            sql(database, f"INSERT INTO {table} ({columns}) VALUES ({values})")


def test_what_a_claim_left_and_an_attempt_that_has_ended_are_final(services: Services) -> None:
    worker = a_worker(services)
    a_job(services)
    fail_job(services, claimed(services, worker).key, BROKEN)
    for table, column in (("job_ends", "last_error"), ("past_attempts", "outcome")):
        with pytest.raises(Refused, match="herdsman: "):
            sql(services.database, f"UPDATE {table} SET {column} = 'nothing'")


@pytest.mark.parametrize(("what", "value"), [("result", "'1'"), ("last_error", "'it broke'")])
def test_only_a_claim_that_has_ended_leaves_something(services: Services, what: str, value: str) -> None:
    """Else the end that the worker reports later could not be stored, and its work would be lost."""
    worker = a_worker(services)
    job_id = a_job(services)
    key = claimed(services, worker).key
    row = f"INSERT INTO job_ends (job_id, claim_token, {what}) VALUES (:job, :token, {value})"
    for token in (key.token - 1, key.token, key.token + 1):
        with pytest.raises(Refused, match="herdsman: only a claim that has ended"):
            sql(services.database, row, job=job_id, token=token)
    complete_job(services, key, "done")
    assert find_job(services, job_id).result == "done"


def test_only_a_job_that_is_done_has_a_result(database: Database) -> None:
    row_in_state(database, JOB, JobStatus.CANCELLED)
    row = "INSERT INTO job_ends (job_id, claim_token, result) SELECT job_id, claim_token, '1' FROM job_states"
    with pytest.raises(Refused, match="a result only where the job is done"):
        sql(database, row)


def test_counts_of_pools_and_kinds_of_leases_are_checked(database: Database) -> None:
    with pytest.raises(Refused):
        add_row(database, POOL, desired_workers=-1)
    with pytest.raises(Refused):
        add_row(database, LEASE, mode="tpu")


def test_a_guard_that_is_gone_is_missed_by_name(database: Database) -> None:
    with database.engine.connect() as connection:
        assert guards.missing(connection) == []
        assert guards.installed(connection) == {guards.trigger_name(guard) for guard in all_guards()}


def replace_job(database: Database) -> None:
    """REPLACE deletes the old row first, past the guards of one database unless it is told otherwise."""
    verb = "INSERT" if database.backend == "PostgreSQL" else "REPLACE"
    columns = ", ".join(column.name for column in jobs.c)
    sql(database, f"{verb} INTO {JOBS} ({columns}) SELECT {columns} FROM {JOBS}")
