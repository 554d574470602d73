"""Replays beside each other, as a table."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from herdsman.cli.output import echo
from herdsman.sim.whatif.outcome import Outcome, Waits
from herdsman.sim.whatif.sweep import Advice, worthwhile
from herdsman.sim.whatif.trace import Trace

COLUMNS = ("GPU-HOURS", "COST", "P50", "P95", "P99", "IN TIME", "IN USE", "SPAWNS", "PEAK", "CAP HITS")

CLASS_COLUMNS = ("JOBS", "P50", "P95", "P99", "LONGEST", "IN TIME")
MOST_CLASSES = 12
MOST_BESIDE = 4


def print_table(demand: Trace, found: Sequence[Outcome], advised: Advice) -> None:
    """A star marks those of which no other is both cheaper and quicker."""
    span = demand.arrival_s[-1] / 3600
    echo(f"{demand.name}: {len(demand):,} jobs in {span:.1f} h, {demand.work_s / 3600:.1f} GPU-hours of work")
    table = Table(box=None, pad_edge=False)
    table.add_column("POLICY", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    good = worthwhile(found)
    for each in found:
        table.add_row(f"{each.name}{' *' if each in good and len(found) > 1 else ''}", *_cells(each))
    Console(width=max(110, Console().width)).print(table)
    for each in found:
        if each.unfinished:
            echo(f"{each.name}: {each.unfinished:,} jobs had not ended when the replay was given up")
    _print_classes(found)
    if len(found) > 1:
        echo(advised.said)


def _print_classes(found: Sequence[Outcome]) -> None:
    """Waits of each class of jobs, where there are several."""
    if not any(each.by_class for each in found):
        return
    if len(found) > MOST_BESIDE:
        echo("waits of each class of jobs are left out among so many replays; -o json has them")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("CLASS", "POLICY"):
        table.add_column(heading, no_wrap=True)
    for heading in CLASS_COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for place in range(min(MOST_CLASSES, len(found[0].by_class))):
        name = found[0].by_class[place][0]
        for each in found:
            table.add_row(escape(name) or "(none)", each.name, *_waits(dict(each.by_class)[name]))
    echo()
    Console(width=max(110, Console().width)).print(table)
    if (left := len(found[0].by_class) - MOST_CLASSES) > 0:
        echo(f"and {left:,} classes with fewer jobs; -o json has them all")


def _waits(waits: Waits) -> tuple[str, ...]:
    seconds = (waits.p50_s, waits.p95_s, waits.p99_s, waits.max_s)
    return (f"{waits.jobs:,}", *(f"{each:.0f}s" for each in seconds), f"{waits.within_target:.1%}")


def _cells(each: Outcome) -> tuple[str, ...]:
    return (
        f"{each.gpu_hours:.1f}",
        f"{each.cost_usd:.2f}",
        f"{each.wait_p50_s:.0f}s",
        f"{each.wait_p95_s:.0f}s",
        f"{each.wait_p99_s:.0f}s",
        f"{each.within_target:.1%}",
        f"{each.utilisation:.0%}",
        str(each.spawns),
        str(each.peak_workers),
        str(each.cap_hits),
    )
