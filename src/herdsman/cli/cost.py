"""`herdsman cost`: what the fleet cost, and how much of it was waiting."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from herdsman.cli.opening import door_here
from herdsman.cli.shown import Output, print_json
from herdsman.control.cost import By
from herdsman.wire.dashboard import CostOut, MoneyOut


def cost(
    by: Annotated[By, typer.Option(help="What to add up by.")] = By.DAY,
    days: Annotated[int, typer.Option(min=1, max=366, help="How many days, today's included.")] = 7,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """Show what instances cost: while they worked, while they waited, and together."""
    found = door_here().cost(days)
    lines = {By.DAY: found.by_day, By.POOL: found.by_pool, By.TYPE: found.by_type}[by]
    if output is Output.JSON:
        print_json(_document(found, by, lines))
    elif not lines:
        typer.echo(f"no instance cost anything since {found.since:%Y-%m-%d}")
    else:
        _print(found, by, lines)


def _document(found: CostOut, by: By, lines: Sequence[MoneyOut]) -> dict[str, object]:
    return {
        "since": found.since,
        "until": found.until,
        "by": by.value,
        "lines": [
            {
                by.value: line.key,
                "busy_usd": line.busy_usd,
                "idle_usd": line.idle_usd,
                "total_usd": line.total_usd,
            }
            for line in lines
        ],
        "total_usd": found.total_usd,
        "per_hour_usd": found.per_hour_usd,
    }


def _print(found: CostOut, by: By, lines: Sequence[MoneyOut]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column(by.value.upper())
    for heading in ("BUSY", "IDLE", "TOTAL"):
        table.add_column(heading, justify="right")
    for line in lines:
        table.add_row(line.key, *map(_money, (line.busy_usd, line.idle_usd, line.total_usd)))
    busy, idle = sum(line.busy_usd for line in lines), sum(line.idle_usd for line in lines)
    table.add_row("all", *map(_money, (busy, idle, found.total_usd)))
    Console().print(table)
    typer.echo(f"{_money(found.per_hour_usd)} USD an hour at this moment")


def _money(amount: float) -> str:
    return f"{amount:.4f}"
