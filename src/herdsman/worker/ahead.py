"""How many jobs a worker takes ahead, and when it gives them back: pure rules on how long jobs of each type took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

_SHARE = 0.2
_SHORTEST_S = 0.000_1


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetch:
    """How far a worker reaches ahead."""

    most: int = 64
    """Jobs that it holds, the one at work included; with 1 none is taken ahead."""
    span_s: float = 0.05
    """It holds as much as it works off in this time."""
    lead_s: float = 0.5
    """The job behind a longer one is asked for so long before that one should end."""
    patience_s: float = 1.0
    """After so long behind a job that turns out longer, claims go back."""
    urgent_s: float = 0.25
    """How often it asks for something more urgent, while it holds a claim behind a longer job."""
    known: int = 3
    """So many jobs of a type say how long the next one takes."""


class Durations:
    """How long jobs of each type took lately, once enough are known: a moving average."""

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._known: dict[str, tuple[int, float]] = {}

    def note(self, kind: str, seconds: float) -> None:
        count, average = self._known.get(kind, (0, seconds))
        self._known[kind] = (count + 1, average + _SHARE * (seconds - average))

    def of(self, kind: str) -> float | None:
        count, average = self._known.get(kind, (0, 0.0))
        return max(average, _SHORTEST_S) if count >= self._enough else None


def take_ahead(
    expected: Mapping[str, float], *, left: float | None, waiting: Sequence[float], prefetch: Prefetch
) -> dict[str, int]:
    """How many more jobs of each type a worker takes ahead.

    `left` says how long the job at work should still run, `waiting` how long each of those takes that wait behind it.
    None is taken while nobody knows when the job at work ends.
    """
    room = prefetch.most - 1 - len(waiting)
    if left is None or room <= 0:
        return {}
    if left > prefetch.span_s:
        return dict.fromkeys(expected, 1) if not waiting and left <= prefetch.lead_s else {}
    spare = prefetch.span_s - left - sum(waiting)
    counts = {kind: ceil(max(spare, 0) / seconds) for kind, seconds in expected.items()}
    if not waiting:  # one is ready in any case
        counts = {kind: max(count, 1) for kind, count in counts.items()}
    return {kind: min(count, room) for kind, count in counts.items() if count > 0}


def kept_ahead(lengths: Sequence[float], *, left: float, late: float, prefetch: Prefetch) -> int:
    """How many of the jobs that wait are kept; the others would begin too late.

    `left` says how long the job at work should still run, and `late` how long it has run beyond what it should.
    """
    if late > prefetch.patience_s:
        return 0
    begins = left
    for number, seconds in enumerate(lengths):
        if begins > prefetch.patience_s:
            return number
        begins += seconds
    return len(lengths)
