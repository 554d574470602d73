"""What was asked of `herdsman sim run`, and what has come of it so far."""

from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256

from herdsman.testing.simulation.run import Order, Ran

MOST_KEPT = 1_000
"""Of seeds that fail, so many are remembered with all that was wrong; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Order):
    processes: int
    told_always: bool = False
    """The last steps of a good seed as well."""
    verify: bool = False
    stop: bool = False


@dataclass
class Tally:
    seeds: int = 0
    violations: int = 0
    failed: int = 0
    failing: list[Ran] = field(default_factory=list[Ran])
    jobs: int = 0
    virtual_s: float = 0.0
    took_s: float = 0.0
    notes: Counter[str] = field(default_factory=Counter[str])
    """In how many seeds each situation occurred."""
    last: Ran | None = None
    interrupted: bool = False
    hash: str = ""
    """Over the hashes of all seeds in their order."""

    def add(self, ran: Ran) -> None:
        self.seeds += 1
        self.jobs += ran.jobs
        self.virtual_s += ran.lasted_s
        self.notes.update(ran.notes.keys())
        self.last = ran
        self.hash = sha256(f"{self.hash}{ran.hash}".encode()).hexdigest()[:16]
        if ran.violations:
            self._add_failing(ran)

    def _add_failing(self, ran: Ran) -> None:
        self.failed += 1
        self.violations += len(ran.violations)
        if len(self.failing) < MOST_KEPT:
            self.failing.append(ran)
