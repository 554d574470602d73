"""What a row of the tasks face shows of a job, and of which type it is where PostgreSQL has to be told."""

from collections.abc import Mapping

from herdsman.core.faces import TASK_STATUS, TaskStatus, states_of
from herdsman.core.states import JobState
from herdsman.store.schema import in_states

VIEW = "tasks"
ROW_TYPE = "task_row"

_INSTANT = "timestamp with time zone"
_QUEUED = in_states(states_of(TaskStatus.QUEUED), "j.status")
_WAITING = in_states((JobState.SCHEDULED, JobState.FAILED), "j.status")


def status_name(state: str) -> str:
    """SQL: the name that the tasks face has for the state in the column or variable `state`."""
    cases = " ".join(f"WHEN '{here}' THEN '{status}'" for here, status in TASK_STATUS.items())
    return f"CASE {state} {cases} END"


COLUMNS: Mapping[str, tuple[str, str]] = {
    "id": ("j.job_id", "text"),
    "task_type": ("j.type", "text"),
    "params": ("j.payload", "json"),
    "status": (status_name("j.status"), "text"),
    "attempts": ("j.attempts", "integer"),
    "worker_id": ("j.worker_id", "text"),
    "created_at": ("j.created_at", _INSTANT),
    "updated_at": ("j.updated_at", _INSTANT),
    # Of a task that waits again the earlier attempt is over: who looks for stuck ones must not see it.
    "generation_started_at": (
        f"CASE WHEN NOT ({_QUEUED}) THEN COALESCE(j.started_at, j.claimed_at) END",
        _INSTANT,
    ),
    "generation_processed_at": (
        f"COALESCE(j.finished_at, CASE WHEN j.status = '{JobState.FAILED}' THEN j.updated_at END)",
        _INSTANT,
    ),
    "next_attempt_at": (f"CASE WHEN {_WAITING} THEN j.run_at END", _INSTANT),
    "error_message": ("j.last_error", "text"),
    "result": ("j.result", "json"),
}

ROW: Mapping[str, tuple[str, str]] = {**COLUMNS, "claim_token": ("j.claim_token", "bigint")}
"""What the functions give: a row of the view, and the token that says which claim this is."""

FROM = "FROM orchestrator_jobs j"


def view_select() -> str:
    return f"SELECT {', '.join(f'{value} AS {name}' for name, (value, _) in COLUMNS.items())} {FROM}"


def row_select(*, cast: bool) -> str:
    """The rows of the functions; `cast` to the types of ROW_TYPE, which PostgreSQL takes literally."""
    values = {name: f"CAST({value} AS {kind})" if cast else value for name, (value, kind) in ROW.items()}
    return f"SELECT {', '.join(f'{value} AS {name}' for name, value in values.items())} {FROM}"
