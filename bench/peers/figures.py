"""How measured numbers are summed up and shown."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of them, from 0 to 1, do not exceed: one that was measured."""
    if not values:
        raise ValueError("there are no values to take a percentile of: measure at least once")
    if not 0 <= share <= 1:
        raise ValueError(f"the share is {share}: it must be from 0 to 1")
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


def ratio(ours: float, theirs: float) -> str:
    """How many times theirs ours is."""
    return f"{ours / theirs:.2f}x"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown: the first column is text, the others are numbers."""
    rules = ["---", *("---:" for _ in heads[1:])]
    wrong = [row for row in rows if len(row) != len(heads)]
    assert not wrong, f"{wrong} do not fit under {heads}"
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))
