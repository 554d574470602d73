"""How many of the latest jobs were late, and what follows for the next ones: the target leaves a few of them free."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

AIMED = 0.03
"""One in twenty may be late, and two in a hundred are kept in hand."""
UNKNOWN = 2.0
"""Jobs that are taken to have been late just as often as they may, before any was seen."""
MOST_CARE = 2.0
"""Beyond this, more care buys nothing: what is late then is late for another reason."""


@dataclass(frozen=True, slots=True)
class Lateness:
    jobs: int
    late: int

    @classmethod
    def of(cls, waits_s: Sequence[float], target: float) -> Self:
        return cls(len(waits_s), sum(1 for each in waits_s if each > target))

    @property
    def spare(self) -> float:
        """So many of the next jobs may be late."""
        return max(0.0, AIMED * self.jobs - self.late)

    @property
    def care(self) -> float:
        """How many margins of safety to take: 1 where jobs are late as often as they may be, less where they are not."""
        return min(MOST_CARE, (self.late + UNKNOWN) / (AIMED * self.jobs + UNKNOWN))

    def must(self, jobs: float) -> float:
        """Of so many, those that have to be in time. Half is held back for those that wait or run and are not counted yet."""
        return jobs - max(AIMED * jobs, min(jobs, self.spare / 2))
