"""What is known of the work of a pool beyond its queue: who comes, how long jobs take, how long starts take."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from itertools import accumulate
from math import sqrt
from typing import Protocol

from herdsman.fleet.actions import Number
from herdsman.fleet.model import FleetPolicy

SLOT = timedelta(minutes=5)
"""Arrivals are counted in pieces of so long."""
RECENT = 12
"""So many of the latest pieces are kept: an hour."""
AHEAD = 3
"""Of the day before, so many pieces before this time of day and after it are kept: what was about to come then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    arrivals: tuple[int, ...] = ()
    """Jobs that came in each of the latest pieces of time, the oldest first."""
    day_before: tuple[int, int] | None = None
    """A day ago, in the `AHEAD` pieces up to this time of day and in those after it; None where nothing is known."""
    service_s: tuple[float, ...] = ()
    """How long each of the latest jobs held its worker."""
    boots_s: tuple[float, ...] = ()
    """How long each of the latest workers took from its request to its first readiness."""
    waits_s: tuple[float, ...] = ()
    """How long each of the latest jobs waited before it first began."""
    failing: float = 0.0
    """The share of the latest starts that ended badly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    queued: int
    active: int = 0
    spawning: int = 0
    busy: int = 0
    since_scaled: timedelta | None = None
    """How long the fleet has had its size; None when that is not known."""
    held_for: tuple[timedelta, ...] = ()
    """How long each busy worker has been at its job."""
    starting_for: tuple[timedelta, ...] = ()
    """How long ago each starting worker was asked for."""
    failures: int = 0
    starts: int = 0
    """Starts that ended lately, well or badly, and how many of them badly."""
    cost_per_hour: float = 0.0
    """What one worker costs, as the ones that are there do on average; 0 where nobody knows."""
    demand: Demand | None = None

    @property
    def capacity(self) -> int:
        """Workers that are there or on their way."""
        return self.active + self.spawning


@dataclass(frozen=True, slots=True)
class Wanted:
    """Grow to so many, keep so many, and the terms both were computed from."""

    grow_to: int
    keep: int
    terms: Mapping[str, Number] = field(default_factory=dict[str, Number])
    said: str = ""
    """Why, in a sentence of the policy's own; empty where the terms say it all."""
    idle_limit: timedelta | None = None
    """How long a worker too many may be idle, where that is less than the settings allow."""


class ScalingPolicy(Protocol):
    """Pure: the same load and policy give the same answer. The ceiling is applied again by the caller."""

    def __call__(self, load: Load, policy: FleetPolicy) -> Wanted: ...


def bounded(wanted: int, policy: FleetPolicy) -> int:
    return min(policy.max_workers, max(policy.min_workers, wanted))


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
