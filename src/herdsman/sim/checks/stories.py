"""The audit of one object as a story, and what the checks ask of it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf

from herdsman.core.reasons import Reason
from herdsman.core.states import HELD, JOB, JobState
from herdsman.sim.checks.history import History, JobRow, Move, Run

Story = Sequence[Move]

DONE, PENDING, CLAIMED, CANCELLED = (
    state.value for state in (JobState.DONE, JobState.PENDING, JobState.CLAIMED, JobState.CANCELLED)
)
ENDED = frozenset(state.value for state in JOB.terminal)
_REQUEUES = (Reason.REQUEUED, Reason.REQUEUED_EDITED)
IN_HAND = frozenset(state.value for state in HELD)


def stories_of(history: History, kind: str = JOB.kind) -> dict[str, list[Move]]:
    """The moves of each object of this kind, in the order in which they were committed."""
    found: defaultdict[str, list[Move]] = defaultdict(list)
    for move in history.moves:
        if move.kind == kind:
            found[move.id].append(move)
    return found


def job_rows(history: History) -> dict[str, JobRow]:
    return {row.id: row for row in history.rows if isinstance(row, JobRow)}


def is_claim(move: Move) -> bool:
    return move.new == CLAIMED and move.old == PENDING


def is_reopening(move: Move) -> bool:
    """A person puts a job that has ended back into the queue (J6)."""
    return move.old in ENDED and move.new == PENDING and move.reason in _REQUEUES


def is_end(move: Move) -> bool:
    return move.new in ENDED and move.old not in ENDED


def says_cancelled(move: Move) -> bool:
    return move.new == CANCELLED or move.reason == Reason.CANCEL_REQUESTED


def lives(story: Story) -> list[list[Move]]:
    """The story cut where a person began it anew."""
    found: list[list[Move]] = [[]]
    for move in story:
        if is_reopening(move):
            found.append([])
        found[-1].append(move)
    return found


def tokens_of(story: Story) -> Iterator[tuple[Move, int]]:
    """Each move with the claim token that the job has after it: one more with each claim, and when reopened (J6)."""
    token = 0
    for move in story:
        token += is_claim(move) or is_reopening(move)
        yield move, token


def done_tokens(story: Story) -> set[int]:
    return {token for move, token in tokens_of(story) if move.new == DONE and move.old != DONE}


def listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names)) or "none"


def end_of(run: Run) -> float:
    """One that still goes on has no end yet."""
    return inf if run.ended is None else run.ended
