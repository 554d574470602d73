"""Times the contenders in turn, so that whatever else the machine does hits them alike."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


def measure(fields: Mapping[int, Mapping[str, Contender]], effort: Effort) -> Timings:
    """`fields` has the contenders of each backlog. One more round comes first and is not counted."""
    kept: defaultdict[Case, list[float]] = defaultdict(list)
    for number in range(effort.rounds + 1):
        for case, seconds in _round(fields, effort, backwards=number % 2 == 1):
            if number > 0:
                kept[case].append(seconds)
    return {case: median(rounds) for case, rounds in kept.items()}


def _round(
    fields: Mapping[int, Mapping[str, Contender]], effort: Effort, *, backwards: bool
) -> Sequence[tuple[Case, float]]:
    found: list[tuple[Case, float]] = []
    for size in SIZES:
        for backlog, sides in fields.items():
            for name in sorted(sides, reverse=backwards):
                spent = _cycles(sides[name], size, effort.cycles[size])
                found += [(Case(name, operation, size, backlog), seconds) for operation, seconds in spent.items()]
    return found


def _cycles(contender: Contender, size: int, count: int) -> Mapping[str, float]:
    """Each cycle submits what it claims, so the backlog stays what it is."""
    spent = dict.fromkeys(OPERATIONS, 0.0)
    for _ in range(count):
        spent["submit"] += _timed(lambda: contender.submit(size))[1]
        claims, seconds = _timed(lambda: contender.claim(size))
        assert len(claims) == size, f"{len(claims)} jobs were claimed, not {size}"
        spent["claim"] += seconds
        spent["complete"] += _timed(lambda claims=claims: contender.complete(claims))[1]
    spent[BOTH] = spent["claim"] + spent["complete"]
    return {operation: seconds / count / size for operation, seconds in spent.items()}


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began
