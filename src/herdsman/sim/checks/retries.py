"""How often a job is tried, and when it is given up."""

from collections.abc import Iterator

from herdsman.core.reasons import Reason
from herdsman.core.states import JobState
from herdsman.sim.checks.history import History, JobRow, Limits, Move
from herdsman.sim.checks.stories import ENDED, IN_HAND, job_rows, stories_of

DEAD = JobState.DEAD_LETTER.value
GIVEN_UP = frozenset(
    {
        Reason.USER_ERROR,
        Reason.ATTEMPTS_EXHAUSTED,
        Reason.KILLS_WORKERS,
        Reason.INTERRUPTED_TOO_OFTEN,
        Reason.OUT_OF_MEMORY_AGAIN,
    }
)


def retries(history: History) -> Iterator[str]:
    """J5: attempts, lost workers and interruptions stay within their limits, and nothing is given up before."""
    rows = job_rows(history)
    for row in rows.values():
        yield from _within(row, history.limits)
    for job_id, story in stories_of(history).items():
        for move in story:
            if move.new == DEAD and move.reason not in GIVEN_UP:
                yield f"job {job_id} was given up at {move.at:.3f} because of {move.reason!r}, which is no reason"
        if job_id in rows and rows[job_id].status == DEAD:
            yield from _early(rows[job_id], story[-1], history.limits)


def _counts(row: JobRow, limits: Limits) -> dict[Reason, tuple[str, int, int]]:
    most = limits.most_attempts if row.max_attempts is None else row.max_attempts
    return {
        Reason.ATTEMPTS_EXHAUSTED: ("attempts", row.attempts - row.interruptions, most),
        Reason.KILLS_WORKERS: ("lost workers", row.worker_losses, limits.most_worker_losses),
        Reason.INTERRUPTED_TOO_OFTEN: ("interruptions", row.interruptions, limits.most_interruptions),
    }


def _within(row: JobRow, limits: Limits) -> Iterator[str]:
    for reason, (name, count, most) in _counts(row, limits).items():
        if count > most:
            yield f"job {row.id} has {count} {name}, and {most} are allowed"
        # The last attempt that is allowed is claimed with the count at its limit already.
        last_one = reason is Reason.ATTEMPTS_EXHAUSTED and row.status in IN_HAND
        if count == most and row.status not in ENDED and not last_one:
            yield f"job {row.id} has used up all {most} {name} and is {row.status} again"


def _early(row: JobRow, last: Move, limits: Limits) -> Iterator[str]:
    for reason, (name, count, most) in _counts(row, limits).items():
        if last.reason == reason and count < most:
            yield f"job {row.id} was given up at {last.at:.3f} after {count} of {most} {name}"
