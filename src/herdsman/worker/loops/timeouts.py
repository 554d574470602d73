"""Which timeouts must fit together, and what is wrong where they do not."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    wait_time_seconds: float = 30.0
    watchdog_threshold: float | None = 720.0
    watchdog_interval: float = 60.0
    visibility_timeout: float = 1800.0
    max_processing_time: float = 0.0
    """The longest that one message takes between two beats; 0 when nobody said."""


def misfits(given: Timeouts) -> list[str]:
    return [] if given.watchdog_threshold is None else list(_misfits(given, given.watchdog_threshold))


def _misfits(given: Timeouts, threshold: float) -> Iterator[str]:
    longest = given.max_processing_time
    if not given.visibility_timeout > threshold + longest:
        yield (
            "visibility_timeout > watchdog_threshold + max_processing_time does not hold: "
            f"{given.visibility_timeout:g} > {threshold:g} + {longest:g}; "
            "raise visibility_timeout, or a message comes back while it is still worked on"
        )
    if not threshold > given.wait_time_seconds + longest:
        yield (
            "watchdog_threshold > wait_time_seconds + max_processing_time does not hold: "
            f"{threshold:g} > {given.wait_time_seconds:g} + {longest:g}; "
            "raise watchdog_threshold, or healthy work is killed"
        )
    if not given.watchdog_interval < threshold / 3:
        yield (
            "watchdog_interval < watchdog_threshold / 3 does not hold: "
            f"{given.watchdog_interval:g} < {threshold:g} / 3; "
            "lower watchdog_interval, or a stall is found late"
        )
