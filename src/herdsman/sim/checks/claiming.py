"""Who may have a job, and when."""

from collections.abc import Iterator

from herdsman.core.states import JOB, WORKER, JobState, WorkerState
from herdsman.sim.checks.history import History
from herdsman.sim.checks.stories import IN_HAND, is_claim, job_rows

_WORKER = "worker:"
_ROUNDING_S = 0.001


def only_active(history: History) -> Iterator[str]:
    """W2: a worker that starts, drains or has ended is given nothing."""
    states: dict[str, str] = {}
    for move in history.moves:
        if move.kind == WORKER.kind:
            states[move.id] = move.new
        elif is_claim(move) and move.actor.startswith(_WORKER):
            worker = move.actor.removeprefix(_WORKER)
            state = states.get(worker, WorkerState.ACTIVE)
            if state != WorkerState.ACTIVE:
                yield f"job {move.id} was given to {worker} at {move.at:.3f}, which is {state}"


def not_before(history: History) -> Iterator[str]:
    """J9: a job that is to wait is queued when its time has come, by the clock of that moment."""
    rows = job_rows(history)
    delays = {each.job_id: each.delay_s for each in history.submissions if each.delay_s}
    for move in history.moves:
        if move.kind != JOB.kind or move.id not in delays or move.id not in rows:
            continue
        due = rows[move.id].created_at + delays[move.id]
        queued = move.new == JobState.PENDING and move.old in (None, JobState.SCHEDULED)
        if queued and move.at < due - _ROUNDING_S:
            yield f"job {move.id} was queued at {move.at:.3f}, and not wanted before {due:.3f}"


def one_of_a_key(history: History) -> Iterator[str]:
    """Of jobs that share a concurrency key one is held at a time, in the order of the commits."""
    keys = {each.job_id: each.concurrency_key for each in history.submissions if each.concurrency_key}
    holder: dict[str, str] = {}
    for move in history.moves:
        key = keys.get(move.id) if move.kind == JOB.kind else None
        if key is None:
            continue
        if is_claim(move) and key in holder:
            yield f"job {move.id} was given out at {move.at:.3f}, and {holder[key]} of the same key {key} was held"
        if move.new in IN_HAND:
            holder[key] = move.id
        elif holder.get(key) == move.id:
            del holder[key]
