"""Measures one control cycle over a large fleet and a long queue: what is read, and what is decided from it.

Run it with `python -m bench.cycle`; `--quick` shows in a minute that it works. Runpod is left out: its list of
instances is given. It ends with status 1 when one of the limits is not kept.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import TypeVar

from bench.backlog import fill
from bench.databases import PLACES, opened
from bench.durability import settings_of
from bench.fleet import Herd, populate
from bench.machine import machine
from bench.report import programs, today
from bench.work import KIND, PAYLOAD
from herdsman.fleet.decide import decide
from herdsman.jobs.model import NewJob

T = TypeVar("T")

BOTH_LIMIT, DECIDE_LIMIT = timedelta(seconds=1), timedelta(milliseconds=50)
HEAD = """# One control cycle

Milliseconds to read the fleet and its queue, and to decide what to do; the last column is what the larger needs
over what the smaller does. The limits, for the largest on PostgreSQL: together {both:.0f} ms, decide {decide:.0f} ms.

- Measured on {date}: {machine}, {programs}.
- Medians of {rounds} looks. Every second worker holds a job, and each has finished {attempts} before.
{databases}"""


@dataclass(frozen=True)
class Size:
    workers: int
    jobs: int

    def __str__(self) -> str:
        return f"{self.workers:,} workers, {self.jobs:,} jobs"


@dataclass(frozen=True)
class Times:
    """In seconds."""

    observe: float
    decide: float


@dataclass(frozen=True)
class Measured:
    name: str
    settings: str
    times: dict[Size, Times]

    def row(self) -> list[str]:
        least, most = self.times.values()
        growth = (most.observe + most.decide) / (least.observe + least.decide)
        cells = [f"{1e3 * each.observe:.1f} + {1e3 * each.decide:.1f}" for each in (least, most)]
        return [self.name, *cells, f"{growth:.1f}"]

    def kept(self) -> bool:
        _, most = self.times.values()
        fast = most.observe + most.decide < BOTH_LIMIT.total_seconds()
        return fast and most.decide < DECIDE_LIMIT.total_seconds()


def main() -> int:
    asked = _arguments()
    sizes = [Size(100, 1_000), Size(1_000, 10_000) if asked.quick else Size(10_000, 1_000_000)]
    rounds = 3 if asked.quick else 15
    measured = [_measure(name, sizes, rounds) for name in asked.databases]
    table = _report(measured, sizes, rounds)
    print(table)
    if asked.write:
        asked.write.write_text(table)
    return 0 if all(one.kept() for one in measured if one.name.startswith("PostgreSQL")) else 1


def _measure(name: str, sizes: Sequence[Size], rounds: int) -> Measured:
    with ExitStack() as stack:
        names = [f"workers_{size.workers}" for size in sizes]
        place = stack.enter_context(PLACES[name](names))
        print(f"{place.name} {place.version}", file=sys.stderr)
        times: dict[Size, Times] = {}
        for size, database in zip(sizes, names, strict=True):
            services = stack.enter_context(opened(place.urls[database]))
            fill(services, NewJob(type=KIND, payload=PAYLOAD), size.jobs + size.workers // 2)
            times[size] = _times(populate(services, size.workers), rounds)
        return Measured(f"{place.name} {place.version}", settings_of(place.urls[names[0]]), times)


def _times(herd: Herd, rounds: int) -> Times:
    """One more comes first and is not counted."""
    looked = [_timed(herd.look) for _ in range(rounds + 1)][1:]
    decided = [_timed(lambda seen=seen: decide(seen)) for seen, _ in looked]
    return Times(median(took for _, took in looked), median(took for _, took in decided))


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began


def _report(measured: Sequence[Measured], sizes: Sequence[Size], rounds: int) -> str:
    head = HEAD.format(
        both=1e3 * BOTH_LIMIT.total_seconds(),
        decide=1e3 * DECIDE_LIMIT.total_seconds(),
        date=today(),
        machine=machine(),
        programs=programs(),
        rounds=rounds,
        attempts=Herd.ATTEMPTS,
        databases="\n".join(f"- {one.name}: {one.settings}." for one in measured),
    )
    heads = ["observe + decide", *map(str, sizes), "growth"]
    rows = [heads, ["---", *("---:" for _ in heads[1:])], *(one.row() for one in measured)]
    return head + "\n\n" + "\n".join(f"| {' | '.join(cells)} |" for cells in rows) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--databases", type=lambda text: text.split(","), default=list(PLACES))
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that it works")
    parser.add_argument("--write", type=Path, help="where to keep the table as well")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
