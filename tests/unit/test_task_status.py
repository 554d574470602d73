"""Every state has one name in the view `tasks`, and every name leads back to its states."""

import pytest

from herdsman.errors import InvalidRequest
from herdsman.jobs.rules import STATUS_NAMES, TASK_STATUS, states_of
from herdsman.states import JobStatus


@pytest.mark.parametrize("state", JobStatus)
def test_a_state_is_found_again_by_its_name(state: JobStatus) -> None:
    assert state in states_of(TASK_STATUS[state])


@pytest.mark.parametrize("name", STATUS_NAMES)
def test_a_name_leads_to_states_that_have_it(name: str) -> None:
    assert states_of(name)
    assert {TASK_STATUS[state] for state in states_of(name)} == {STATUS_NAMES[name]}


def test_the_names_divide_the_states_among_them() -> None:
    told = [state for status in set(TASK_STATUS.values()) for state in states_of(status)]
    assert sorted(told) == sorted(JobStatus)


def test_the_mapping_is_the_promised_one() -> None:
    assert {state.value: status for state, status in TASK_STATUS.items()} == {
        "scheduled": "Queued",
        "pending": "Queued",
        "claimed": "In Progress",
        "running": "In Progress",
        "done": "Complete",
        "failed": "Error",
        "dead_letter": "Failed",
        "cancelled": "Cancelled",
    }


def test_running_is_another_name_for_in_progress() -> None:
    assert states_of("Running") == states_of("In Progress") == (JobStatus.CLAIMED, JobStatus.RUNNING)
    assert "Running" not in TASK_STATUS.values()


@pytest.mark.parametrize("name", ["", "queued", "pending", "QUEUED", "In progress"])
def test_a_name_that_is_none_is_refused_with_the_ones_there_are(name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"choose from Queued, In Progress, .*, Running"):
        states_of(name)
