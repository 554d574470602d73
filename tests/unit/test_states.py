"""The state tables say what the contract says; J6 stands here once more, written by hand."""

import pytest

from herdsman.states import HELD, JOB, MACHINES, SERVING, JobStatus, Machine, WorkerStatus

J6 = """
scheduled   -> pending cancelled
pending     -> claimed cancelled dead_letter
claimed     -> running pending done failed cancelled dead_letter
running     -> done failed pending cancelled dead_letter
failed      -> pending dead_letter cancelled
done        ->
dead_letter ->
cancelled   ->
"""
OTHERS = {
    "worker": """
spawning    -> active error
active      -> terminating error
terminating -> terminated
error       -> terminated
terminated  ->
""",
    "pool": """
starting -> running draining evicted
running  -> draining evicted
draining -> running stopped evicted
stopped  -> starting
evicted  -> starting
""",
    "lease": """
active   -> released expired revoked
released ->
expired  ->
revoked  ->
""",
}
TABLES = {"job": J6, **OTHERS}
EACH = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.kind)


@EACH
def test_j6_the_moves_are_those_of_the_contract(machine: Machine[JobStatus]) -> None:
    assert moves_of(machine) == read_table(TABLES[machine.kind])


def test_j6_an_ended_job_is_reopened_to_pending_only() -> None:
    reopened = {(str(here), str(there)) for here, after in JOB.reopens.items() for there in after}
    assert reopened == {("done", "pending"), ("dead_letter", "pending"), ("cancelled", "pending")}


def test_jobs_begin_waiting_and_end_in_three_ways() -> None:
    assert JOB.initial == {JobStatus.SCHEDULED, JobStatus.PENDING}
    assert JOB.terminal == {JobStatus.DONE, JobStatus.DEAD_LETTER, JobStatus.CANCELLED}
    assert set(HELD) == {JobStatus.CLAIMED, JobStatus.RUNNING}


def test_a_worker_may_live_until_it_was_given_up() -> None:
    assert set(WorkerStatus) - set(SERVING) == {WorkerStatus.ERROR, WorkerStatus.TERMINATED}


@EACH
def test_every_state_can_be_reached(machine: Machine[JobStatus]) -> None:
    assert machine.reachable(machine.initial) == set(machine.states)


def test_j1_from_every_live_state_a_job_can_end() -> None:
    assert all(JOB.reachable([state]) & JOB.terminal for state in JOB.live)


@EACH
def test_the_questions_of_a_machine_agree_with_each_other(machine: Machine[JobStatus]) -> None:
    assert machine.live | machine.terminal == set(machine.states)
    assert not machine.live & machine.terminal
    for here in machine.states:
        assert here not in machine.moves[here]
        for there in machine.states:
            assert machine.allows(here, there) == (here in machine.sources(there))


def moves_of(machine: Machine[JobStatus]) -> set[tuple[str, str]]:
    return {(str(here), str(there)) for here, after in machine.moves.items() for there in after}


def read_table(table: str) -> set[tuple[str, str]]:
    lines = [line.partition("->") for line in table.strip().splitlines()]
    return {(here.strip(), there) for here, _, after in lines for there in after.split()}
