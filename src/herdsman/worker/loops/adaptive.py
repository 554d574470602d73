"""A stall threshold that follows how long the work really takes."""

from collections.abc import Sequence
from math import ceil
from typing import Protocol


class Threshold(Protocol):
    def seconds(self) -> float: ...


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed."""
    ranked = sorted(values)
    return ranked[max(0, ceil(share * len(ranked)) - 1)]


class AdaptiveThreshold:
    """A multiple of what most pieces of work took lately, never under the floor nor over the ceiling.

    Until enough has been seen it is the ceiling: patience costs time, a wrong kill costs work.
    """

    def __init__(
        self,
        *,
        floor: float = 60.0,
        ceiling: float = 720.0,
        share: float = 0.99,
        factor: float = 3.0,
        keep: int = 500,
        fewest: int = 20,
    ) -> None:
        if not 0 < floor <= ceiling:
            raise ValueError(f"floor is {floor} and ceiling {ceiling}: use 0 < floor <= ceiling")
        if not 0 < share <= 1 or factor < 1:
            raise ValueError(f"share is {share} and factor {factor}: use a share up to 1, a factor from 1 on")
        if not 1 <= fewest <= keep:
            raise ValueError(f"fewest is {fewest} and keep {keep}: use 1 <= fewest <= keep")
        self._floor, self._ceiling = floor, ceiling
        self._share, self._factor = share, factor
        self._keep, self._fewest = keep, fewest
        self._seen: tuple[float, ...] = ()

    def note(self, took: float) -> None:
        # A new tuple each time: whoever judges in another thread reads the old one to its end.
        self._seen = (*self._seen, took)[-self._keep :]

    def seconds(self) -> float:
        seen = self._seen
        if len(seen) < self._fewest:
            return self._ceiling
        return min(self._ceiling, max(self._floor, quantile(seen, self._share) * self._factor))


class Half:
    """Half of another threshold, whatever that is by now."""

    def __init__(self, whole: float | Threshold) -> None:
        self._whole = whole

    def seconds(self) -> float:
        return seconds_of(self._whole) / 2


def seconds_of(threshold: float | Threshold) -> float:
    return threshold if isinstance(threshold, int | float) else threshold.seconds()
