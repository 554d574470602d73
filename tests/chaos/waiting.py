"""Waiting for a fact, and how long it took."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from statistics import quantiles
from typing import TypeVar

T = TypeVar("T")
LONGEST = timedelta(seconds=60)


def waited_for(look: Callable[[], T | None], limit: timedelta = LONGEST) -> T:
    deadline = time.monotonic() + limit.total_seconds()
    while (found := look()) is None:
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
    return found


def percentile(percent: int, values: Sequence[float]) -> float:
    return quantiles([0.0, *values], n=100, method="inclusive")[percent - 1]


def percentile_99(taken: Sequence[timedelta]) -> timedelta:
    return timedelta(seconds=percentile(99, [each.total_seconds() for each in taken]))


def summary(taken: Sequence[timedelta]) -> str:
    if not taken:
        return "never"
    median, worst = sorted(taken)[len(taken) // 2], max(taken)
    return f"{len(taken)} times: median {median}, p99 {percentile_99(taken)}, worst {worst}"
