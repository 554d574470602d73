"""`herdsman cost`: what the fleet cost, and how much of it was waiting."""

from collections.abc import Sequence
from typing import Annotated

import typer

from herdsman.cli.connection import connect
from herdsman.cli.listing import LayoutOption, Listing, Watch, show
from herdsman.cli.output import Layout
from herdsman.client import Client, dashboard_calls
from herdsman.control.cost import By
from herdsman.wire.dashboard import CostOut, MoneyOut


def cost(
    by: Annotated[By, typer.Option(help="What to add up by.")] = By.DAY,
    days: Annotated[int, typer.Option(min=1, max=366, help="How many days, today's included.")] = 7,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """Show what instances cost: while they worked, while they waited, and together."""
    client = connect()
    show(lambda: _look(client, by, days), output, watch=watch)


def _look(client: Client, by: By, days: int) -> Listing:
    found = client.send(dashboard_calls.cost(days))
    lines = {By.DAY: found.by_day, By.POOL: found.by_pool, By.TYPE: found.by_type}[by]
    whole = (sum(line.busy_usd for line in lines), sum(line.idle_usd for line in lines), found.total_usd)
    each = [(line.key, *_row(line.busy_usd, line.idle_usd, line.total_usd)) for line in lines]
    return Listing(
        document=_document(found, by, lines),
        columns=(by.value.upper(), "BUSY", "IDLE", "TOTAL", "+IDLE SHARE"),
        rows=[*each, ("all", *_row(*whole))] if lines else (),
        empty=f"no instance cost anything since {found.since:%Y-%m-%d}",
        below=[f"{_money(found.per_hour_usd)} USD an hour at this moment"] if lines else (),
    )


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


def _row(busy: float, idle: float, total: float) -> tuple[str, ...]:
    share = f"{idle / total:.0%}" if total else ""
    return *(f"{_money(each):>10}" for each in (busy, idle, total)), share


def _money(amount: float) -> str:
    return f"{amount:.4f}"
