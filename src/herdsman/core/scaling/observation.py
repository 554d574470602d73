"""What a scaling policy is told about a pool, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from herdsman.core.findings import Number
from herdsman.core.policy import FleetPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    queued: int
    active: int = 0
    spawning: int = 0
    busy: int = 0
    since_scaled: timedelta | None = None
    """How long the fleet has had its size; None when that is not known."""

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


class ScalingPolicy(Protocol):
    """Pure: the same load and policy give the same answer. The ceiling is applied again by the caller."""

    def __call__(self, load: Load, policy: FleetPolicy) -> Wanted: ...


def bounded(wanted: int, policy: FleetPolicy) -> int:
    return min(policy.max_workers, max(policy.min_workers, wanted))
