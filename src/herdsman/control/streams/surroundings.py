"""What the streams may ask of the replica that they belong to."""

from collections.abc import Callable
from dataclasses import dataclass

from herdsman.control.cycle import Cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    wake: Callable[[], None]
    """Jobs were queued elsewhere."""
    ring: Callable[[], None]
    """Jobs were queued here."""
    leads: Callable[[], bool] = lambda: False
    tick: Callable[[], Cycle] | None = None
    """One cycle of the control loop, where there is one."""
