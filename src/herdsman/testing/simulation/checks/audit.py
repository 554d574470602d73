"""Replays the audit log: it must lead to what the tables say. Also the helpers that read a job's life from it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import TypeVar

from herdsman.states import HELD, JOB, MACHINES, AnyMachine, JobStatus, Reason
from herdsman.testing.simulation.checks.history import History, JobRow, Move, Run

Story = Sequence[Move]
T = TypeVar("T")
K = TypeVar("K")

DONE, PENDING, CLAIMED, CANCELLED = (
    state.value for state in (JobStatus.DONE, JobStatus.PENDING, JobStatus.CLAIMED, JobStatus.CANCELLED)
)
ENDED = frozenset(state.value for state in JOB.terminal)
_REQUEUES = (Reason.REQUEUED, Reason.REQUEUED_EDITED)
IN_HAND = frozenset(state.value for state in HELD)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> defaultdict[K, list[T]]:
    """In their order."""
    found: defaultdict[K, list[T]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found


def stories_of(history: History) -> dict[str, list[Move]]:
    """The moves of each job, in the order in which they were committed."""
    return grouped((move for move in history.moves if move.kind == JOB.kind), lambda move: move.id)


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


Key = tuple[str, str]


def _legal(machine: AnyMachine) -> frozenset[tuple[str | None, str]]:
    """Every step that needs no person."""
    first = {(None, str(state)) for state in machine.initial}
    return frozenset(first | {(str(old), str(new)) for old, after in machine.moves.items() for new in after})


LEGAL = {machine.kind: _legal(machine) for machine in MACHINES}
LIVE = {machine.kind: frozenset(map(str, machine.live)) for machine in MACHINES}


def audit(history: History) -> Iterator[str]:
    """A1: one line for each step, numbered without a gap; each follows the one before; the last one is the row."""
    stories = grouped(history.moves, lambda move: (move.kind, move.id))
    for key, story in stories.items():
        yield from _story(key, story)
    yield from _replayed(history, stories)


def _story(key: Key, story: Story) -> Iterator[str]:
    state: str | None = None
    for number, move in enumerate(story, start=1):
        if move.seq != number:
            yield f"{_named(key)} has line {move.seq} at {move.at:.3f} where line {number} belongs"
        if move.old != state:
            yield f"{_named(key)} goes on from {move.old} at {move.at:.3f}, and was {state}"
        if not _is_legal(move):
            yield f"{_named(key)} went from {move.old} to {move.new} at {move.at:.3f}, which is no legal move"
        state = move.new


def _is_legal(move: Move) -> bool:
    if move.kind not in LEGAL or (move.old, move.new) in LEGAL[move.kind]:
        return True
    if move.kind != JOB.kind:
        return False
    asked_to_cancel = move.reason == Reason.CANCEL_REQUESTED and move.old == move.new
    return is_reopening(move) or (asked_to_cancel and move.new in IN_HAND)


def _replayed(history: History, stories: dict[Key, list[Move]]) -> Iterator[str]:
    rows = {(row.kind, row.id): row for row in history.rows}
    for key, row in rows.items() if history.moves else ():
        story = stories.get(key)
        if story is None:
            yield f"{_named(key)} is {row.status} and has no audit"
        elif (row.status, row.version) != (story[-1].new, story[-1].seq):
            yield (
                f"{_named(key)} is {row.status} in version {row.version},"
                f" and its audit ends with {story[-1].new} in line {story[-1].seq}"
            )
    for key, story in stories.items() if rows else ():
        if key not in rows and story[-1].new in LIVE.get(key[0], ()):
            yield f"{_named(key)} has no row, and its audit ends with {story[-1].new} at {story[-1].at:.3f}"


def _named(key: Key) -> str:
    return " ".join(key)
