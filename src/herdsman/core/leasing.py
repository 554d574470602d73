"""Who may use a GPU: the rules of leases, on plain values."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class LeaseMode(StrEnum):
    OFF = "off"
    """Nobody is given a lease, and jobs run without one."""
    SHADOW = "shadow"
    """Leases are written down and never refused: what would have been is counted."""
    ON = "on"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePolicy:
    mode: LeaseMode = LeaseMode.ON
    ttl: timedelta = timedelta(seconds=60)
    """For who names none."""
    longest_ttl: timedelta = timedelta(hours=1)
    margin: timedelta = timedelta(seconds=5)
    """So long before its end a holder stops."""
    reserve_mb: int = 0
    """Memory of every GPU that is never given out."""
    tolerance_mb: int = 512
    """So much may be left in use on a GPU that counts as empty: the driver's own share of a process."""
    silent_after: timedelta = timedelta(seconds=60)
    """A GPU whose memory nobody has measured for so long is not given out."""
    empty_within: timedelta = timedelta(seconds=10)
    """So long after the end of a lease its memory may still be in use before the GPU is quarantined."""
