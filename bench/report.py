"""The table: what was measured, on what, and how it stands against the limits."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from bench.databases import Place
from bench.limits import ActionReason, findings, growth, ratio
from bench.machine import machine
from bench.measure import BOTH, OPERATIONS, SIZES, Case, Effort, Timings

HEAD = """# The store beside the bare driver

Microseconds per job: Herdsman / the same statements by hand on the driver = ratio. The last column is what
Herdsman needs with the largest backlog over what it needs with the smallest.

- Measured on {date}: {machine}, {programs}.
- Medians of all calls in {rounds}. The two take turns;
  client and server share the machine. Job ids rise with time.
{databases}"""


@dataclass(frozen=True)
class Measured:
    place: Place
    settings: str
    timings: Timings
    backlogs: list[int]

    def findings(self) -> list[ActionReason]:
        return list(findings(self.place.name, self.timings, self.backlogs))


def report(measured: Sequence[Measured], effort: Effort) -> str:
    parts = [_head(measured, effort), *(_table(one) for one in measured), _verdict(measured)]
    return "\n\n".join(parts) + "\n"


def _head(measured: Sequence[Measured], effort: Effort) -> str:
    cycles = " and ".join(f"{effort.cycles[size]} x {size}" for size in SIZES)
    return HEAD.format(
        date=today(),
        machine=machine(),
        programs=programs(),
        rounds=f"{effort.rounds} rounds; each submits, claims and completes {cycles} jobs",
        databases="\n".join(f"- {one.place.name} {one.place.version}: {one.settings}." for one in measured),
    )


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def programs() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("SQLAlchemy", "psycopg", "PyMySQL"))
    return f"Python {platform.python_version()}, {packages}"


def _table(measured: Measured) -> str:
    backlogs = measured.backlogs
    heads = [measured.place.name, *(f"{backlog:,} waiting" for backlog in backlogs), "growth"]
    rows = [_row(measured, operation, size) for size in SIZES for operation in (*OPERATIONS, BOTH)]
    rules = ["---", *("---:" for _ in heads[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def _row(measured: Measured, operation: str, size: int) -> list[str]:
    timings, backlogs = measured.timings, measured.backlogs
    name = operation if size == 1 else f"{operation}, by {size}"
    cells = [_cell(timings, operation, size, backlog) for backlog in backlogs]
    return [name, *cells, f"{growth(timings, operation, size, backlogs):.2f}"]


def _cell(timings: Timings, operation: str, size: int, backlog: int) -> str:
    ours, raw = (timings[Case(side, operation, size, backlog)] * 1e6 for side in ("ours", "raw"))
    return f"{ours:,.0f} / {raw:,.0f} = {ratio(timings, operation, size, backlog):.2f}"


def _verdict(measured: Sequence[Measured]) -> str:
    found = [str(finding) for one in measured for finding in one.findings()]
    return "\n".join(["```text", *found, "```"])
