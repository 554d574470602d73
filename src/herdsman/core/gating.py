"""Gates that close for everybody, and the watermarks that close and open them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from herdsman.core.control_policy import Gates

LATELY = timedelta(seconds=60)
"""How old a measurement of a GPU may be and still say something."""


class Limit(StrEnum):
    """What was reached: a stable word, in answers, on jobs and in metrics."""

    RATE = "rate_limited"
    QUEUED = "queue_quota"
    GPU_SECONDS = "gpu_seconds_quota"
    GPU_MEMORY = "gpu_memory_gate"
    DEPTH = "queue_depth_gate"
    OLDEST = "oldest_gate"


GATES = (Limit.GPU_MEMORY, Limit.DEPTH, Limit.OLDEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shut:
    """One gate that is closed."""

    until: datetime | None = None
    """None where only the queue itself can open it."""
    detail: str = ""


Closed = Mapping[Limit, Shut]
"""The gates that are closed; one that is not in it is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the gates look at. The pool for CPUs is left out: it is where jobs go when a gate is closed."""

    now: datetime
    depth: int = 0
    oldest: timedelta | None = None
    gpu_used_mb: int = 0
    gpu_total_mb: int = 0
    """Of the GPUs that were measured lately; 0 where nobody has measured any."""


def stays_shut(*, shut: bool, value: float, high: float, low: float | None) -> bool:
    """Closed from `high` on, and once closed until the value is down to `low`; without that, below `high`."""
    if value >= high:
        return True
    return shut and low is not None and value > low


def turned(gates: Gates, seen: Load, before: Closed) -> Closed:
    """The gates as they must be now."""
    return dict(_all(gates, seen, before))


def _all(gates: Gates, seen: Load, before: Closed) -> Iterator[tuple[Limit, Shut]]:
    if gates.gpu_memory_high_pct is not None and (shut := _memory(gates, seen, before)) is not None:
        yield Limit.GPU_MEMORY, shut
    if gates.queue_high is not None and stays_shut(
        shut=Limit.DEPTH in before, value=seen.depth, high=gates.queue_high, low=gates.queue_low
    ):
        yield Limit.DEPTH, Shut(detail=f"the queue has reached {gates.queue_high} jobs")
    if gates.oldest_high is not None and stays_shut(
        shut=Limit.OLDEST in before,
        value=(seen.oldest or timedelta(0)).total_seconds(),
        high=gates.oldest_high.total_seconds(),
        low=None if gates.oldest_low is None else gates.oldest_low.total_seconds(),
    ):
        yield Limit.OLDEST, Shut(detail=f"jobs have waited for {gates.oldest_high}")


def _memory(gates: Gates, seen: Load, before: Closed) -> Shut | None:
    """Held for a time, counted from the last look that found too much in use."""
    assert gates.gpu_memory_high_pct is not None
    last = before.get(Limit.GPU_MEMORY)
    share = 100 * seen.gpu_used_mb / seen.gpu_total_mb if seen.gpu_total_mb else 0.0
    if share > gates.gpu_memory_high_pct:
        until = seen.now + gates.gpu_memory_hold
        # A little later is no news: what did not change need not be written.
        known = last is not None and last.until is not None and until - last.until < gates.gpu_memory_hold / 4
        detail = f"{share:.0f} % of the GPU memory is in use"
        return last if known else Shut(until=until, detail=detail)
    # One that lies further ahead than a hold was written before the clock was set back, or the hold was shortened.
    held = last is not None and last.until is not None and last.until <= seen.now + gates.gpu_memory_hold
    return last if held and last is not None and last.until is not None and last.until > seen.now else None
