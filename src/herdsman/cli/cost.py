"""`herdsman cost`: what the fleet cost, and how much of it was waiting."""

from decimal import Decimal
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from herdsman.cli.services import services_here
from herdsman.cli.shown import Output, print_json
from herdsman.control.cost import Bill, By, bill


def cost(
    by: Annotated[By, typer.Option(help="What to add up by.")] = By.DAY,
    days: Annotated[int, typer.Option(min=1, max=366, help="How many days, today's included.")] = 7,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """Show what instances cost: while they worked, while they waited, and together."""
    found = bill(services_here(), by, days)
    if output is Output.JSON:
        print_json(_document(found, by))
    elif not found.lines:
        typer.echo(f"no instance cost anything since {found.since:%Y-%m-%d}")
    else:
        _print(found, by)


def _document(found: Bill, by: By) -> dict[str, object]:
    return {
        "since": found.since,
        "until": found.until,
        "by": by.value,
        "lines": [
            {
                by.value: line.key,
                "busy_usd": float(line.busy),
                "idle_usd": float(line.idle),
                "total_usd": float(line.total),
            }
            for line in found.lines
        ],
        "total_usd": float(found.total),
        "per_hour_usd": float(found.per_hour),
    }


def _print(found: Bill, by: By) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column(by.value.upper())
    for heading in ("BUSY", "IDLE", "TOTAL"):
        table.add_column(heading, justify="right")
    for line in found.lines:
        table.add_row(line.key, _money(line.busy), _money(line.idle), _money(line.total))
    busy, idle = (
        sum((line.busy for line in found.lines), Decimal(0)),
        sum((line.idle for line in found.lines), Decimal(0)),
    )
    table.add_row("all", _money(busy), _money(idle), _money(found.total))
    Console().print(table)
    typer.echo(f"{_money(found.per_hour)} USD an hour at this moment")


def _money(amount: Decimal) -> str:
    return f"{amount:.4f}"
