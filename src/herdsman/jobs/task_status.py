"""The names that people who work in SQL know the states of a job by: the one table of the view `tasks`."""

from collections.abc import Mapping
from enum import StrEnum

from herdsman.errors import InvalidRequest
from herdsman.states import JobState


class TaskStatus(StrEnum):
    QUEUED = "Queued"
    IN_PROGRESS = "In Progress"
    COMPLETE = "Complete"
    ERROR = "Error"
    """Waiting for its retry time; a task that will not be tried again is `Failed`."""
    FAILED = "Failed"
    CANCELLED = "Cancelled"


TASK_STATUS: Mapping[JobState, TaskStatus] = {
    JobState.SCHEDULED: TaskStatus.QUEUED,
    JobState.PENDING: TaskStatus.QUEUED,
    JobState.CLAIMED: TaskStatus.IN_PROGRESS,
    JobState.RUNNING: TaskStatus.IN_PROGRESS,
    JobState.DONE: TaskStatus.COMPLETE,
    JobState.FAILED: TaskStatus.ERROR,
    JobState.DEAD_LETTER: TaskStatus.FAILED,
    JobState.CANCELLED: TaskStatus.CANCELLED,
}
ALIASES: Mapping[str, TaskStatus] = {"Running": TaskStatus.IN_PROGRESS}
"""Other names that a filter takes; nothing ever shows them."""
STATUS_NAMES: Mapping[str, TaskStatus] = {**{str(status): status for status in TaskStatus}, **ALIASES}


def states_of(name: str) -> tuple[JobState, ...]:
    """The states that a status of the view `tasks`, or an alias of one, stands for."""
    if name not in STATUS_NAMES:
        raise InvalidRequest(f"{name!r} is no status of a task: choose from {', '.join(STATUS_NAMES)}")
    wanted = STATUS_NAMES[name]
    return tuple(state for state, status in TASK_STATUS.items() if status is wanted)
