"""What a scaling policy is told about a pool, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from herdsman.core.findings import Number
from herdsman.core.policy import FleetPolicy
from herdsman.core.scaling.demand import Demand


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
