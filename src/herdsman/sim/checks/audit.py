"""The audit told again from its first line must come to what the tables say."""

from collections import defaultdict
from collections.abc import Iterator

from herdsman.core.machine import AnyMachine
from herdsman.core.reasons import Reason
from herdsman.core.states import JOB, MACHINES
from herdsman.sim.checks.history import History, Move
from herdsman.sim.checks.stories import IN_HAND, Story, is_reopening

Key = tuple[str, str]


def _legal(machine: AnyMachine) -> frozenset[tuple[str | None, str]]:
    """Every step that needs no person."""
    first = {(None, str(state)) for state in machine.initial}
    return frozenset(first | {(str(old), str(new)) for old, after in machine.moves.items() for new in after})


LEGAL = {machine.kind: _legal(machine) for machine in MACHINES}
LIVE = {machine.kind: frozenset(map(str, machine.live)) for machine in MACHINES}


def audit(history: History) -> Iterator[str]:
    """A1: one line for each step, numbered without a gap; each follows the one before; the last one is the row."""
    stories: defaultdict[Key, list[Move]] = defaultdict(list)
    for move in history.moves:
        stories[move.kind, move.id].append(move)
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
