"""Replays beside each other, as a table."""

from collections.abc import Sequence

import typer
from rich.console import Console
from rich.table import Table

from herdsman.sim.whatif.outcome import Outcome
from herdsman.sim.whatif.sweep import Advice, worthwhile
from herdsman.sim.whatif.trace import Trace

COLUMNS = ("GPU-HOURS", "COST", "P50", "P95", "P99", "IN TIME", "IN USE", "SPAWNS", "PEAK", "CAP HITS")


def print_table(demand: Trace, found: Sequence[Outcome], advised: Advice) -> None:
    """A star marks those of which no other is both cheaper and quicker."""
    span = demand.arrival_s[-1] / 3600
    typer.echo(
        f"{demand.name}: {len(demand):,} jobs in {span:.1f} h, {demand.work_s / 3600:.1f} GPU-hours of work"
    )
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
            typer.echo(f"{each.name}: {each.unfinished:,} jobs had not ended when the replay was given up")
    if len(found) > 1:
        typer.echo(advised.said)


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
