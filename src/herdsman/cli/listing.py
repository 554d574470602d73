"""Lists on the screen: a table that fits, everything there is, or a document; once, or again and again."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from herdsman.cli.output import Layout, echo, print_json
from herdsman.errors import StoreUnavailable, Unreachable
from herdsman.ports import SystemClock
from herdsman.text import printable, printable_lines

EVERY = timedelta(seconds=2)
_NOBODYS_WIDTH = 400
"""Where no screen limits it, a line is as long as it has to be."""

LayoutOption = Annotated[Layout, typer.Option("--output", "-o", help="How to print.")]
Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Look again every 2 seconds, until Ctrl-C.", show_default=False)
]

_STYLES = {
    "done": "green", "active": "green", "running": "cyan", "claimed": "cyan", "spawning": "yellow",
    "starting": "yellow", "draining": "yellow", "terminating": "yellow", "failed": "yellow",
    "dead_letter": "red", "error": "red", "evicted": "red", "revoked": "red", "cancelled": "dim",
    "terminated": "dim", "stopped": "dim", "released": "dim", "expired": "dim",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    document: Mapping[str, object]
    columns: Sequence[str]
    """Headings; one that begins with `+` is only there when all is asked for."""
    rows: Sequence[Sequence[str]]
    empty: str
    """What to say where there is nothing; best, how to get something."""
    next: str | None = None
    below: Sequence[str] = field(default=())
    then: str = ""
    """The next useful command; shown to people only."""


def show(look: Callable[[], Listing], layout: Layout, *, watch: bool = False) -> None:
    if not watch:
        _print(look(), layout)
    elif layout is not Layout.JSON and _screen().is_terminal:
        # In place; what does not fit is cut off rather than scrolled.
        with (
            suppress(KeyboardInterrupt),
            Live(console=_screen(), auto_refresh=False, vertical_overflow="crop") as live,
        ):
            while True:
                live.update(_seen(look, layout), refresh=True)
                SystemClock().sleep(EVERY)
    else:
        with suppress(KeyboardInterrupt):
            _append(look, layout)


def footer(command: str) -> None:
    """The next useful command, for a person at a terminal."""
    if command and sys.stdout.isatty():
        _screen().print(_next(command))


def _print(found: Listing, layout: Layout) -> None:
    if layout is Layout.JSON:
        print_json(found.document)
    else:
        screen = _screen()
        screen.print(_drawn(found, layout, footed=screen.is_terminal))


def _append(look: Callable[[], Listing], layout: Layout) -> None:
    while True:
        try:
            _print(look(), layout)
        except (Unreachable, StoreUnavailable) as error:
            echo(f"{error}; looking again", err=True)
        sys.stdout.flush()
        SystemClock().sleep(EVERY)


def _seen(look: Callable[[], Listing], layout: Layout) -> RenderableType:
    """A server that restarts is no reason to stop watching."""
    try:
        return _drawn(look(), layout, footed=True)
    except (Unreachable, StoreUnavailable) as error:
        return Text(f"{printable_lines(str(error))}; looking again", style="red")


def _drawn(found: Listing, layout: Layout, *, footed: bool) -> RenderableType:
    parts: list[RenderableType] = [_table(found, wide=layout is Layout.WIDE)] if found.rows else []
    if not found.rows and found.empty:
        parts.append(Text(printable_lines(found.empty)))
    parts += [Text(printable_lines(line)) for line in found.below]
    if found.next is not None:
        parts.append(Text(f"more: the same command with --after {printable(found.next)}"))
    if footed and found.then:
        parts.append(_next(found.then))
    return Group(*parts)


def _table(found: Listing, *, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    shown = [number for number, name in enumerate(found.columns) if wide or not name.startswith("+")]
    for number in shown:
        heading = found.columns[number].removeprefix("+")
        table.add_column(heading, no_wrap=number == 0, overflow="fold" if number == 0 else "ellipsis")
    for row in found.rows:
        table.add_row(*(_cell(found.columns[number], row[number]) for number in shown))
    return table


def _cell(heading: str, value: str) -> Text:
    return Text(printable(value), style=_STYLES.get(value, "") if heading == "STATE" else "")


def _next(command: str) -> Text:
    return Text(f"next: {printable(command)}", style="dim")


def _screen() -> Console:
    """Colours, and a width, only where a terminal has them; NO_COLOR is obeyed."""
    if Console().is_terminal:
        return Console(highlight=False)
    return Console(highlight=False, width=_NOBODYS_WIDTH, no_color=True, force_terminal=False)
