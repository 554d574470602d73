"""The databases refuse by themselves every move that the state tables do not know (J6), whoever types the SQL."""

from typing import Any

import pytest

from herdsman.db.connection import Database
from herdsman.db.errors import Refused
from herdsman.db.schema import jobs
from herdsman.states import JOB, MACHINES, JobStatus, Machine, Reason
from tests.support.builders import scalar, sql
from tests.support.rows import add_row, move_row, row_in_state

FROM = [pytest.param(machine, here, id=f"{machine.kind}-{here}") for machine in MACHINES for here in machine.states]
EACH = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.kind)


@pytest.mark.parametrize(("machine", "here"), FROM)
def test_j6_a_row_moves_as_the_state_table_says_and_not_otherwise(
    database: Database, machine: Machine[Any], here: Any
) -> None:
    for there in set(machine.states) - {here}:
        key = f"to-{there}"
        row_in_state(database, machine, here, key)
        if machine.allows(here, there):
            move_row(database, machine, there, key)
            assert status(database, machine, key) == there
        else:
            with pytest.raises(Refused, match=f"herdsman: illegal move of {machine.public}.status"):
                move_row(database, machine, there, key)
            assert status(database, machine, key) == here


@pytest.mark.parametrize("end", sorted(JOB.terminal))
def test_j6_an_end_is_left_only_by_a_requeue_that_raises_the_token(database: Database, end: JobStatus) -> None:
    row_in_state(database, JOB, end)
    token = jobs.c.claim_token
    spoils: tuple[dict[str, Any], ...] = (
        {"reason": Reason.REQUEUED.value},
        {"reason": Reason.REQUEUED.value, "claim_token": token + 2},
        {"reason": Reason.DUE.value, "claim_token": token + 1},
    )
    for spoiled in spoils:
        with pytest.raises(Refused, match="illegal move"):
            move_row(database, JOB, JobStatus.PENDING, **spoiled)
    move_row(database, JOB, JobStatus.PENDING, reason=Reason.REQUEUED.value, claim_token=token + 1)


def test_j6_a_pending_job_cannot_be_declared_done(database: Database) -> None:
    add_row(database, JOB, status=JobStatus.PENDING)
    with pytest.raises(Refused, match="herdsman: "):
        sql(database, "UPDATE job_states SET status='done'")
    with pytest.raises(Refused, match=r"herdsman: illegal move of orchestrator_jobs\.status"):
        sql(database, "UPDATE job_states SET status='done', version = version + 1")
    assert status(database, JOB, "x") == JobStatus.PENDING


@EACH
def test_a_row_begins_in_an_initial_state_with_version_1(database: Database, machine: Machine[Any]) -> None:
    refused = f"a new {machine.kind} must begin in an initial state with version 1"
    for number, state in enumerate(set(machine.states) - machine.initial):
        with pytest.raises(Refused, match=refused):
            add_row(database, machine, f"bad-{number}", status=str(state))
    with pytest.raises(Refused, match=refused):
        add_row(database, machine, "bad-version", version=2)
    for state in machine.initial:
        add_row(database, machine, f"good-{state}", status=str(state))


@EACH
def test_a_state_that_nobody_knows_is_refused(database: Database, machine: Machine[Any]) -> None:
    """In another case it is another name: one of the databases would compare without it unless told."""
    add_row(database, machine)
    known = str(min(machine.initial))
    for unknown in ("asleep", known.upper(), f"{known} ", ""):
        for step in (0, 1):
            renamed = f"UPDATE {machine.table} SET status = :state, version = version + {step}"
            with pytest.raises(Refused):
                sql(database, renamed, state=unknown)
    assert status(database, machine, "x") == known


@EACH
def test_a_move_raises_the_version_by_one_and_nothing_else_does(database: Database, machine: Machine[Any]) -> None:
    """A1: the version numbers the audit, so that a gap or a second row of one number cannot be."""
    add_row(database, machine)
    to = min(machine.moves[min(machine.initial)])
    refused = f"a move of {machine.public} must raise version by one, and nothing else may"
    for version in (0, 1, 3):
        with pytest.raises(Refused, match=refused):
            move_row(database, machine, to, version=version)
    with pytest.raises(Refused, match=refused):
        sql(database, f"UPDATE {machine.table} SET version = version + 1")
    move_row(database, machine, to)


@EACH
def test_a_row_keeps_its_name_for_ever(database: Database, machine: Machine[Any]) -> None:
    add_row(database, machine)
    with pytest.raises(Refused, match=f"{machine.public}.{machine.key} never changes"):
        sql(database, f"UPDATE {machine.table} SET {machine.key} = 'y'")


@EACH
def test_a1_a_move_typed_by_hand_is_in_the_audit_all_the_same(database: Database, machine: Machine[Any]) -> None:
    add_row(database, machine)
    move_row(database, machine, to := min(machine.moves[min(machine.initial)]), reason="fat_finger", actor="ann")
    told = database.read(lambda tx: tx.connection.exec_driver_sql(AUDIT + f"'{machine.kind}' ORDER BY seq").all())
    first = str(min(machine.initial))
    assert [tuple(row) for row in told if row[0] == "x"] == [
        ("x", 1, f"{machine.kind}.{first}", None, first, "test", "test"),
        ("x", 2, f"{machine.kind}.{to}", first, to, "fat_finger", "ann"),
    ]


AUDIT = (
    "SELECT object_id, seq, event_type, from_status, to_status, reason, actor"
    " FROM orchestrator_audit WHERE object_kind = "
)


def status(database: Database, machine: Machine[Any], key: str) -> str:
    return scalar(database, f"SELECT status FROM {machine.table} WHERE {machine.key} = :key", key=key)
