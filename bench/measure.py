"""Times the contenders in turn, so that whatever else the machine does hits them alike."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import TypeVar

from bench.work import Contender

T = TypeVar("T")

OPERATIONS = ("submit", "claim", "complete")
BOTH = "claim+complete"
SIZES = (1, 100)


@dataclass(frozen=True)
class Case:
    """One number of the table: who did what, how many at once, with how many jobs waiting."""

    side: str
    operation: str
    size: int
    backlog: int


@dataclass(frozen=True)
class Effort:
    """How often: rounds, and in each so many cycles of submit, claim and complete."""

    rounds: int
    cycles: Mapping[int, int]


Timings = Mapping[Case, float]
"""Seconds per job."""
Fields = Mapping[int, Mapping[str, Contender]]
"""The contenders of each backlog, by name."""


def measure(fields: Fields, effort: Effort) -> Timings:
    """The median of every call. One more round comes first and is not counted."""
    kept: defaultdict[Case, list[float]] = defaultdict(list)
    for number in range(effort.rounds + 1):
        for case, seconds in _round(fields, effort, backwards=number % 2 == 1):
            if number > 0:
                kept[case].append(seconds / case.size)
    return {case: median(calls) for case, calls in kept.items()}


def _round(fields: Fields, effort: Effort, *, backwards: bool) -> Iterator[tuple[Case, float]]:
    for size, backlog in product(SIZES, fields):
        for side, contender in sorted(fields[backlog].items(), reverse=backwards):
            for _ in range(effort.cycles[size]):
                for operation, seconds in _cycle(contender, size).items():
                    yield Case(side, operation, size, backlog), seconds


def _cycle(contender: Contender, size: int) -> Mapping[str, float]:
    """It submits what it claims, so the backlog stays what it is."""
    _, submit = _timed(lambda: contender.submit(size))
    claims, claim = _timed(lambda: contender.claim(size))
    assert len(claims) == size, f"{len(claims)} jobs were claimed, not {size}"
    _, complete = _timed(lambda: contender.complete(claims))
    return {"submit": submit, "claim": claim, "complete": complete, BOTH: claim + complete}


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began
