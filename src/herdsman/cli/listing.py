"""Lists: as a table that fits, with every column, or as JSON; once, or refreshed every 2 seconds."""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from herdsman.cli.output import Layout, echo, print_json
from herdsman.errors import StoreUnavailable, Unreachable
from herdsman.ports import SystemClock
from herdsman.text import printable, printable_lines

EVERY = timedelta(seconds=2)
_UNLIMITED_WIDTH = 400
"""Without a terminal, a line is as long as it has to be."""

LayoutOption = Annotated[Layout, typer.Option("--output", "-o", help="Output format.")]
Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Refresh every 2 seconds, until Ctrl-C.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="How many at most.")]
After = Annotated[str | None, typer.Option(help="Where the previous page ended.")]

_STYLES = {
    "done": "green", "active": "green", "running": "cyan", "claimed": "cyan", "spawning": "yellow",
    "starting": "yellow", "draining": "yellow", "terminating": "yellow", "failed": "yellow",
    "dead_letter": "red", "error": "red", "evicted": "red", "revoked": "red", "cancelled": "dim",
    "terminated": "dim", "stopped": "dim", "released": "dim", "expired": "dim",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    document: object
    """For JSON."""
    columns: Sequence[str]
    """Headings; one that begins with `+` is only in the wide table."""
    rows: Sequence[Sequence[str]]
    empty: str
    """What to say where there are no rows; best, how to get some."""
    next: str | None = None
    below: Sequence[str] = ()
    then: str = ""
    """The next useful command; shown to people only."""


def show(read: Callable[[], Listing], layout: Layout, *, watch: bool = False) -> None:
    screen = _screen()
    if not watch:
        _print(read(), layout, screen)
        return
    from rich.live import Live  # noqa: PLC0415

    # What does not fit on the screen is cut off rather than scrolled.
    in_place = (
        Live(console=screen, auto_refresh=False, vertical_overflow="crop")
        if layout is not Layout.JSON and screen.is_terminal
        else nullcontext()
    )
    with suppress(KeyboardInterrupt), in_place as live:
        while True:
            try:
                if live is None:
                    _print(read(), layout, screen)
                else:
                    live.update(_drawn(read(), layout, footed=True), refresh=True)
            except (Unreachable, StoreUnavailable) as error:  # a server that restarts
                if live is None:
                    echo(f"{error}; trying again", err=True)
                else:
                    live.update(Text(printable_lines(f"{error}; trying again"), style="red"), refresh=True)
            sys.stdout.flush()
            SystemClock().sleep(EVERY)


def footer(command: str) -> None:
    if command and sys.stdout.isatty():
        _screen().print(_next(command))


def _print(found: Listing, layout: Layout, screen: Console) -> None:
    if layout is Layout.JSON:
        print_json(found.document)
    else:
        screen.print(_drawn(found, layout, footed=screen.is_terminal))


def _drawn(found: Listing, layout: Layout, *, footed: bool) -> RenderableType:
    parts: list[RenderableType] = []
    if found.rows:
        shown = [
            number for number, name in enumerate(found.columns) if layout is Layout.WIDE or not name.startswith("+")
        ]
        table = Table(box=None, pad_edge=False)
        for number in shown:
            heading = found.columns[number].removeprefix("+")
            table.add_column(heading, no_wrap=number == 0, overflow="fold" if number == 0 else "ellipsis")
        for row in found.rows:
            cells = {number: Text(printable(row[number])) for number in shown}
            if "STATUS" in found.columns:
                column = found.columns.index("STATUS")
                cells[column].stylize(_STYLES.get(row[column], ""))
            table.add_row(*cells.values())
        parts.append(table)
    elif found.empty:
        parts.append(Text(printable_lines(found.empty)))
    parts += [Text(printable_lines(line)) for line in found.below]
    if found.next is not None:
        parts.append(Text(f"more: the same command with --after {printable(found.next)}"))
    if footed and found.then:
        parts.append(_next(found.then))
    return Group(*parts)


def _next(command: str) -> Text:
    return Text(f"next: {printable(command)}", style="dim")


def _screen() -> Console:
    """Colours and a width only where a terminal has them; NO_COLOR is obeyed."""
    if Console().is_terminal:
        return Console(highlight=False, emoji=False)
    return Console(highlight=False, emoji=False, width=_UNLIMITED_WIDTH, no_color=True, force_terminal=False)
