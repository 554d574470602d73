"""What must be true when everybody was left alone for long enough."""

from collections.abc import Iterator

from herdsman.core.states import JOB, LEASE, WORKER, LeaseState, WorkerState
from herdsman.sim.checks.history import History
from herdsman.sim.checks.stories import IN_HAND

_UNREST = {
    JOB.kind: IN_HAND,
    LEASE.kind: frozenset({LeaseState.ACTIVE.value}),
    WORKER.kind: frozenset({WorkerState.TERMINATING.value, WorkerState.ERROR.value}),
}


def quiescence(history: History) -> Iterator[str]:
    """J1, L4, P5: after the last fault all comes to rest: nothing held, nobody on the way out, nobody at work."""
    if not history.quiet:
        return
    for row in history.rows:
        if row.status in _UNREST.get(row.kind, ()):
            yield f"{row.kind} {row.id} is still {row.status} at {history.ended_at:.3f}"
    for run in history.runs:
        if run.ended is None:
            yield f"{run.worker} has been at job {run.job_id} (claim {run.token}) since {run.began:.3f}"
