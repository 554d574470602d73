"""Waiting for something on the server: how often to look, and until when."""

from collections.abc import Iterator
from datetime import timedelta

SHORTEST = timedelta(milliseconds=50)
LONGEST = timedelta(seconds=1)
GROWTH = 1.5

Seconds = float | timedelta


def pauses() -> Iterator[timedelta]:
    """Short at first, for a job that is nearly done, then longer."""
    pause = SHORTEST
    while True:
        yield pause
        pause = min(LONGEST, pause * GROWTH)


def span(given: Seconds) -> timedelta:
    return given if isinstance(given, timedelta) else timedelta(seconds=given)


def seconds(given: Seconds | None) -> float | None:
    return given.total_seconds() if isinstance(given, timedelta) else given


def until(now: float, timeout: Seconds | None) -> float | None:
    return None if timeout is None else now + span(timeout).total_seconds()
