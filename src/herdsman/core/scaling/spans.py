"""A sample of how long something took, asked how long the next one will."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import sqrt

LEAST_S = 0.001
"""Nothing takes no time: what has just begun has not ended."""


@dataclass(frozen=True, slots=True)
class Spans:
    ordered: tuple[float, ...]
    sums: tuple[float, ...]
    """Of the first so many; one longer than the sample."""
    mean: float
    deviation: float

    def ends_within(self, age: float, span: float) -> tuple[float, float]:
        """How likely something that has lasted `age` ends within `span`, and how long it then lasts on average."""
        low, high = bisect_right(self.ordered, age), bisect_right(self.ordered, age + span)
        longer, ending = len(self.ordered) - low, high - low
        if longer == 0:
            # Nothing ever took as long: what has lasted so far is taken to last as long again.
            return span / (span + age), span / 2
        if ending == 0:
            return 0.0, span
        return ending / longer, (self.sums[high] - self.sums[low]) / ending - age


@lru_cache(maxsize=64)
def spans(sample: tuple[float, ...]) -> Spans:
    """A sample is asked about every worker of every cycle, and changes seldom."""
    ordered = tuple(sorted(max(each, LEAST_S) for each in sample))
    mean = sum(ordered) / len(ordered)
    deviation = sqrt(sum((each - mean) ** 2 for each in ordered) / len(ordered))
    return Spans(ordered, tuple(accumulate(ordered, initial=0.0)), mean, deviation)
