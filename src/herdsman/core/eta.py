"""When a job will start and end, guessed from how long others took.

The jobs before it are shared out evenly among the workers, and each takes as long as those of the sample. Their sum
is spread as a sum of independent times is: its mean grows with their number, its deviation only with the root of it.
Priorities of later jobs, limits of agents and models are left aside: it is a guess that says what it rests on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

NORMAL_80 = 0.8416
"""Four out of five values of a normal distribution lie below its mean plus so many deviations."""
LEAST_PROGRESS = 0.02
"""What a job says before it has begun in earnest is no measure of its speed."""


@dataclass(frozen=True, slots=True)
class Guess:
    """Seconds from now."""

    p50: float
    p80: float

    def after(self, earlier: "Guess") -> "Guess":
        return Guess(self.p50 + earlier.p50, self.p80 + earlier.p80)


NOW = Guess(0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a waiting job stands behind."""

    ahead: int
    """Jobs that go before it."""
    workers: int
    """Active ones, busy or not."""
    free: int = 0
    """Those that hold no job."""
    coming: int = 0
    """Workers that are starting."""
    delay: float = 0.0
    """Seconds until it may be given out at all."""


def quantile(sample: Sequence[float], share: float) -> float:
    """The value below which this share of the sample lies; between two of them, in proportion."""
    assert sample, "a quantile of nothing"
    ordered = sorted(sample)
    place = share * (len(ordered) - 1)
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(sample: Sequence[float]) -> Guess:
    return Guess(quantile(sample, 0.5), quantile(sample, 0.8))


def start_of(line: Line, took: Sequence[float], boots: Sequence[float]) -> Guess | None:
    """When a waiting job starts; None when nothing is known that it could be told from."""
    workers, free, before = line.workers, line.free, NOW
    if workers == 0:
        if not boots:
            return None
        before = spread(boots)
        workers = free = max(1, line.coming)
    behind = line.ahead - free + 1
    waiting = NOW if behind <= 0 else shared(behind, workers, took)
    if waiting is None:
        return None
    return _later(waiting.after(before), line.delay)


def shared(jobs: int, workers: int, took: Sequence[float]) -> Guess | None:
    """How long until so many jobs have ended, when so many workers have their hands full."""
    if not took:
        return None
    mean, deviation = jobs * fmean(took), math.sqrt(jobs) * pstdev(took)
    return Guess(mean / workers, (mean + NORMAL_80 * deviation) / workers)


def finish_of(start: Guess | None, took: Sequence[float]) -> Guess | None:
    return None if start is None or not took else spread(took).after(start)


def rest_of(elapsed: float, progress: float | None, took: Sequence[float]) -> Guess | None:
    """Of a job that runs: by its own progress, or by those of the others that took longer than it has so far."""
    if progress is not None and progress >= LEAST_PROGRESS:
        rest = elapsed * (1 - progress) / progress
        return Guess(rest, rest * _wideness(took))
    longer = [each - elapsed for each in took if each > elapsed]
    return spread(longer) if longer else None


def _wideness(took: Sequence[float]) -> float:
    """How much longer than usual a slow one takes; half as long again where there is nothing to tell it from."""
    if not took:
        return 1.5
    usual = spread(took)
    return min(3.0, usual.p80 / usual.p50) if usual.p50 > 0 else 1.0


def _later(guess: Guess, delay: float) -> Guess:
    """What has to wait for its time joins the line only then; meanwhile the line gets shorter."""
    return Guess(max(guess.p50, delay), max(guess.p80, delay))
