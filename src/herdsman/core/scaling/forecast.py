"""How many jobs will come: from the last hour, what followed this hour a day ago, and how much they come in crowds."""

from math import ceil, exp, sqrt

from herdsman.core.scaling.demand import AHEAD, RECENT, SLOT, Demand

SLOT_S = SLOT.total_seconds()
MOST_GROWTH = 3.0
"""However steep yesterday was, no more than so many times as many jobs are expected as come now."""
MOST_CROWD = 50.0
FEW = 0.05
"""So many may be late: the share of jobs that the target does not promise anything to."""
MANY = 60.0
"""Of so many, fewer than the few that may be late lie beyond their mean."""


def coming(known: Demand) -> float:
    """Jobs a second: the faster of the last minutes and the last quarter of an hour, and yesterday's rise."""
    counts = known.arrivals[-RECENT:]
    if not counts:
        return 0.0
    lately = counts[-AHEAD:]
    return max(counts[-1], sum(lately) / len(lately)) / SLOT_S * rise(known)


def most_coming(known: Demand, within: float) -> float:
    """No more than so many come within so many seconds, as a rule."""
    return _most(coming(known) * within, crowding(known, within))


def busiest(known: Demand, within: float) -> float:
    """The same by the whole last hour: who was needed within it may soon be again."""
    counts = known.arrivals[-RECENT:]
    rate = max(sum(counts) / len(counts) / SLOT_S, coming(known)) if counts else 0.0
    return _most(rate * within, crowding(known, within))


def rise(known: Demand) -> float:
    """How much more came a day ago within the next minutes than just before, where that was no accident."""
    if known.day_before is None:
        return 1.0
    was, then = known.day_before
    if then - was <= 2 * sqrt(crowding(known, SLOT_S) * (was + then)):
        return 1.0
    return min(MOST_GROWTH, then / max(was, 1))


def crowding(known: Demand, within: float) -> float:
    """How many come at once, as it looks over such a time: 1 where each comes by itself.

    Told from the differences of neighbouring counts, so that a slow rise does not look like a crowd.
    """
    counts = known.arrivals[-RECENT:]
    total = sum(counts)
    if len(counts) < 2 or total == 0:
        return 1.0
    jumps = sum((one - other) ** 2 for one, other in zip(counts[1:], counts, strict=False))
    whole = jumps / (2 * (len(counts) - 1)) / (total / len(counts))
    return 1 + (min(MOST_CROWD, max(1.0, whole)) - 1) * min(1.0, within / SLOT_S)


def _most(mean: float, crowd: float) -> float:
    """Crowds come by themselves, each at its own time."""
    return 0.0 if mean <= 0 else crowd * _enough(mean / crowd)


def _enough(mean: float) -> int:
    """The smallest count that is seldom passed, or past which few of all that come do: whichever is less.

    The first keeps nobody warm for what comes once a day, the second not for the peaks of what comes all the time.
    """
    if mean > MANY:
        return ceil(mean)
    count, here = 0, exp(-mean)
    reached, beyond = here, mean
    while reached < 1 - FEW and beyond > FEW * mean:
        beyond -= 1 - reached
        count += 1
        here *= mean / count
        reached += here
    return count
