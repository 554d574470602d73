"""What streams may still hold when every job has come to its end, and what they say of those that died."""

from collections import Counter
from collections.abc import Iterator

from herdsman.core.states import JobState
from herdsman.sim.checks.history import Hints, History
from herdsman.sim.checks.stories import job_rows

_DEAD = JobState.DEAD_LETTER.value


def streams(history: History) -> Iterator[str]:
    """S1, S4, X8: no hint outlives its job, whatever Redis lost or made up; each dead job is announced, and once."""
    hints = history.hints
    if hints is None or not history.quiet:
        return
    for name, number in hints.left.items():
        yield f"{number} entries are left in {name}, and every job has ended"
    for name, number in hints.held.items():
        yield f"{number} entries of {name} are held by somebody, and every job has ended"
    yield from _letters(history, hints)


def _letters(history: History, hints: Hints) -> Iterator[str]:
    deaths = Counter(move.id for move in history.moves if move.kind == "job" and move.new == _DEAD)
    for job_id, row in job_rows(history).items():
        told = hints.letters.get(job_id, 0)
        if row.status == _DEAD and told == 0:
            yield f"job {job_id} is a dead letter, and nobody announced it"
        if told > deaths[job_id]:
            yield f"job {job_id} was announced as dead {told} times, and died {deaths[job_id]} times"
