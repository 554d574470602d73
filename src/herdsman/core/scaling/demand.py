"""What is known of the work of a pool beyond its queue: who comes, how long jobs take, how long starts take."""

from dataclasses import dataclass
from datetime import timedelta

SLOT = timedelta(minutes=5)
"""Arrivals are counted in pieces of so long."""
RECENT = 12
"""So many of the latest pieces are told: an hour."""
AHEAD = 3
"""Of the day before, so many pieces before this time of day and after it are told: what was about to come then."""


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
