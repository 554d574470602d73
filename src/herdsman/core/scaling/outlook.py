"""How far a policy that aims at a wait has to look ahead, and what a worker is worth by then."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

from herdsman.core.policy import FleetPolicy
from herdsman.core.scaling.demand import SLOT, Demand
from herdsman.core.scaling.forecast import coming, most_coming
from herdsman.core.scaling.lateness import Lateness
from herdsman.core.scaling.observation import Load
from herdsman.core.scaling.spans import Spans, spans

USUAL_BOOT_S = 120.0
"""Until a start has been timed."""
MOST_FAILING = 0.5
"""However many starts fail, at most twice as many workers are asked for: the breaker is there for the rest."""
LIKELY, POSSIBLE = 0.5, 0.2
"""A start that is in time as often as the first is worth a try, as often as the second only where it is cheaper."""
LINGERS_S = 60.0
"""About so long one that was not needed after all is there before it is let go."""


@dataclass(frozen=True)
class Outlook:
    """All in seconds from now."""

    target: float
    look: float
    """Until the next cycle."""
    took: Spans
    starts: Spans
    fails: float
    """The share of workers that never come."""
    lateness: Lateness
    known: Demand

    @cached_property
    def deadline(self) -> float:
        """On average a job has waited for half a cycle when it is first reckoned with."""
        return max(0.0, self.target - self.look / 2)

    @cached_property
    def slow(self) -> float:
        """When most of the workers that are asked for in the next cycle are there."""
        return self.starts.mean + self.starts.deviation + self.look

    @cached_property
    def starts_help(self) -> bool:
        """A worker asked for when a job waits is there in time: often enough, or so that some too many are cheaper.

        The other way is to have workers wait for jobs.
        """
        share, _ = self.starts.ends_within(0.0, self.deadline)
        if share >= LIKELY or share < POSSIBLE:
            return share >= LIKELY
        counts = self.known.arrivals
        rate = sum(counts) / len(counts) / SLOT.total_seconds() if counts else 0.0
        too_many = rate * (1 / share - 1) * (self.starts.mean + LINGERS_S)
        return too_many <= most_coming(self.known, max(0.0, self.slow - self.target))

    @cached_property
    def by(self) -> float:
        """The moment that is looked at."""
        return self.deadline if self.starts_help else max(self.deadline, self.slow)

    @cached_property
    def exposed(self) -> float:
        """For so long, jobs may come that have to begin before anything decided later could help them."""
        return 0.0 if self.starts_help else max(0.0, self.slow - self.target)

    @cached_property
    def each(self) -> float:
        """How long a job takes."""
        return max(self.took.mean, 0.001)

    def begun(self, free_at: float, until: float) -> float:
        """Jobs that a worker has begun by then, if it is free from a moment on."""
        return 0.0 if free_at > until else 1 + (until - free_at) / self.each

    def by_busy(self, load: Load, until: float) -> float:
        """Each by how likely it ends its job in time: less what is doubtful, as far as jobs have been late."""
        doubt, begun = min(1.0, self.lateness.care), 0.0
        for held in load.held_for:
            chance, rest = self.took.ends_within(held.total_seconds(), until)
            sure = max(0.0, chance - doubt * sqrt(chance * (1 - chance)))
            begun += sure * self.begun(rest, until)
        return begun

    def by_starting(self, age: float) -> tuple[float, float]:
        """Jobs that one asked for so long ago has begun in time, and with those that it begins too late."""
        chance, rest = self.starts.ends_within(age, self.by)
        lives = self._lives(age)
        in_time = lives * chance * self.begun(rest, self.by)
        late = lives * (1 - chance) * (1.0 if age <= self.starts.ordered[-1] else chance)
        return in_time, in_time + late

    def racing(self, must: float, there: float) -> float:
        """With what it takes on top because each start is in time or not: much for one job, little for hundreds."""
        share, _ = self.starts.ends_within(0.0, self.by)
        return must + self.lateness.care * sqrt(max(0.0, must - there) * (1 - share))

    def crowd(self, most: float, within: float) -> float:
        """Between the mean and the most that may come, and beyond it where jobs have been late."""
        mean = coming(self.known) * within
        return mean + max(0.0, most - mean) * self.lateness.care

    def _lives(self, age: float) -> float:
        """The longer a start takes, the more it looks like one of those that fail."""
        if not self.fails:
            return 1.0
        ordered = self.starts.ordered
        longer = len(ordered) - bisect_right(ordered, age)
        still = (1 - self.fails) * max(longer / len(ordered), 1 / (len(ordered) + 1))
        return still / (self.fails + still)


def outlook(load: Load, policy: FleetPolicy, known: Demand) -> Outlook:
    target = policy.target_wait.total_seconds()
    failing = load.failures / load.starts if load.starts else 0.0
    return Outlook(
        target=target,
        look=policy.look_every.total_seconds(),
        took=spans(known.service_s),
        starts=spans(known.boots_s or (USUAL_BOOT_S,)),
        fails=min(MOST_FAILING, max(failing, known.failing)),
        lateness=Lateness.of(known.waits_s, target),
        known=known,
    )
