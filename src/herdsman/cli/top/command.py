"""`herdsman top`: the head of the screen, one frame as plain text, and the start of the live view."""

import sys
from shutil import get_terminal_size
from typing import Annotated

import typer
from rich.text import Text

from herdsman.cli.connect import connect
from herdsman.cli.errors import needed
from herdsman.cli.output import echo, span
from herdsman.cli.top.tables import ASCII, Snapshot, count, ink, money, observe, tables
from herdsman.client import Client
from herdsman.ports import SystemClock
from herdsman.telemetry.logs import configure_logs

SHARES = (4, 6, 5, 6)
"""How the tables divide the screen; at 80 by 24 these are lines."""
_AROUND = 3
"""Two lines of the head, and one at the end."""


def head(snapshot: Snapshot, place: str, width: int) -> tuple[Text, Text]:
    overview, jobs = snapshot.overview, snapshot.overview.jobs
    title = ink("herdsman", "bold") + ink(f" {overview.version}  ") + ink(place, "cyan")
    lead, living = overview.leader, sum(overview.workers.values())
    fleet = ink(f"{count(living)} worker{'' if living == 1 else 's'}  ")
    if lead is None:
        fleet += ink("no leader", "bold red")
    else:
        fleet += ink(f"leader {lead.who}, {span((overview.now - lead.since).total_seconds())}")
    waiting = jobs.get("pending", 0) + jobs.get("scheduled", 0)
    oldest = "" if overview.oldest_wait_s is None else f" ({span(overview.oldest_wait_s)})"
    totals = [
        ink(f"waiting {count(waiting)}{oldest}", "yellow" if waiting else ""),
        ink(f"running {count(overview.running)}", "green" if overview.running else ""),
        ink(f"done {count(jobs.get('done', 0))}"),
    ]
    for name, key in (("retrying", "failed"), ("dead", "dead_letter")):
        if jobs.get(key):
            totals.append(ink(f"{name} {count(jobs[key])}", "red"))
    bill = ink(f"{money(overview.cost_per_hour)}/h  {money(overview.cost_today)} today", "bold")
    return _ends(title, fleet, width), _ends(ink("  ").join(totals), bill, width)


def _ends(left: Text, right: Text, width: int) -> Text:
    """One at each end of a line; where both do not fit, the left one is cut."""
    left.truncate(max(0, width - right.cell_len - 1), overflow="ellipsis", pad=True)
    line = left + ink(" ") + right
    line.truncate(width, overflow="ellipsis")
    return line


def frame(snapshot: Snapshot, place: str, width: int, height: int) -> str:
    """Everything that fits, without colours: for pipes, files and tests."""
    lines = [*head(snapshot, place, width), *(ink(f"! {hold}") for hold in snapshot.overview.holds)]
    for table, share in zip(tables(snapshot), SHARES, strict=True):
        space = max(1, (height - _AROUND) * share // sum(SHARES) - 1)
        shown = table.rows if len(table.rows) <= space else table.rows[: space - 1]
        lines += [table.heading(width), *(table.line(row, width) for row in shown)]
        if not table.rows:
            lines.append(ink(table.empty))
        elif more := len(table.rows) - len(shown):
            lines.append(ink(f"and {more} more"))
    return "\n".join(line.plain.rstrip() for line in lines)


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame as plain text, and exit.")] = False,
) -> None:
    client = connect()
    place, first = client.server.url, observe(client)
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        text = frame(first, place, *get_terminal_size((80, 24)))
        echo(text if "utf" in (sys.stdout.encoding or "").lower() else text.translate(ASCII))
    else:
        _watch(client, place, first)
    client.close()


def _watch(client: Client, place: str, first: Snapshot) -> None:
    with needed("top", "herdsman[server], or print one frame with herdsman top --once"):
        from herdsman.cli.top.app import Top  # noqa: PLC0415  (--once needs no textual, and starts faster)
    # Log lines would break the display; errors are in the banner.
    configure_logs("critical", "text")
    # Without the mouse, the terminal keeps its own way to select and copy text.
    Top(client, place, first, SystemClock()).run(mouse=False)
