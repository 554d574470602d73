"""How long workers take to come, and how many never do."""

from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Boots:
    """Given as a mean and a spread, or as a sample that the times are drawn from."""

    mean_s: float = 90.0
    spread_s: float = 0.0
    sample_s: tuple[float, ...] = ()
    failing: float = 0.0
    """The share of starts that never end well."""

    def draws(self, seed: int) -> "Draws":
        return Draws(self, Random(seed))


@dataclass(slots=True)
class Draws:
    boots: Boots
    chance: Random = field(repr=False)

    def next(self) -> float | None:
        """Seconds from the request to readiness; None for one that never gets ready."""
        boots = self.boots
        if boots.failing and self.chance.random() < boots.failing:
            return None
        if boots.sample_s:
            return self.chance.choice(boots.sample_s)
        if not boots.spread_s:
            return boots.mean_s
        return max(0.1 * boots.mean_s, self.chance.gauss(boots.mean_s, boots.spread_s))
