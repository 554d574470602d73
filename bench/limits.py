"""What we promise of the store's speed, and whether the measured numbers keep it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench.measure import BOTH, Case, Timings

GROWTH_LIMIT = 1.5
BATCH_LIMIT = 1.3
SINGLE_LIMITS: Mapping[str, float] = {"SQLite": 2.5, "PostgreSQL": 1.8, "MariaDB": 1.8}


@dataclass(frozen=True)
class ActionReason:
    what: str
    value: float
    limit: float

    @property
    def kept(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        return f"{'ok  ' if self.kept else 'OVER'} {self.what}: {self.value:.2f}x, the limit is {self.limit}x"


def findings(database: str, timings: Timings, backlogs: list[int]) -> Iterator[ActionReason]:
    """Ratios to raw are the worst over the backlogs."""
    least, most = min(backlogs), max(backlogs)
    if most > least:
        value = growth(timings, "claim", 1, backlogs)
        yield ActionReason(f"{database}, claim with {most:,} waiting against {least:,}", value, GROWTH_LIMIT)
    single = max(ratio(timings, BOTH, 1, backlog) for backlog in backlogs)
    yield ActionReason(f"{database}, claim+complete one by one against raw", single, SINGLE_LIMITS[database])
    if database != "SQLite":
        batch = max(ratio(timings, BOTH, 100, backlog) for backlog in backlogs)
        yield ActionReason(f"{database}, claim+complete by the hundred against raw", batch, BATCH_LIMIT)


def ratio(timings: Timings, operation: str, size: int, backlog: int) -> float:
    return timings[Case("ours", operation, size, backlog)] / timings[Case("raw", operation, size, backlog)]


def growth(timings: Timings, operation: str, size: int, backlogs: list[int]) -> float:
    least, most = (timings[Case("ours", operation, size, pick(backlogs))] for pick in (min, max))
    return most / least
