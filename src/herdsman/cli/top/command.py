"""`herdsman top`: connects to the server, looks once, and shows it."""

import sys
from shutil import get_terminal_size
from typing import Annotated

import typer

from herdsman.cli.connection import connect
from herdsman.cli.output import echo
from herdsman.cli.top.frame import frame
from herdsman.cli.top.seen import Seen, look
from herdsman.cli.top.words import ASCII
from herdsman.client import Client
from herdsman.core.errors import InvalidSettings
from herdsman.ports import SystemClock
from herdsman.telemetry.logs import configure_logs


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame as plain text, and exit.")] = False,
) -> None:
    """Watch the herd in the terminal: queues, workers, jobs, money and decisions."""
    client = connect()
    place, first = client.server.url, look(client)
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        echo(_printable(frame(first, place, *get_terminal_size((80, 24)))))
    else:
        _watch(client, place, first)
    client.close()


def _watch(client: Client, place: str, first: Seen) -> None:
    try:
        from herdsman.cli.top.app import Top  # noqa: PLC0415  (--once needs no textual, and starts faster)
    except ModuleNotFoundError as error:
        package = (error.name or "herdsman").partition(".")[0]
        if package == "herdsman":
            raise
        raise InvalidSettings(
            f"herdsman top needs the package {package}, which is not installed here:"
            " install herdsman[server], or print one frame with herdsman top --once"
        ) from error
    # A line of log would stand in the middle of the picture; what went wrong is in the banner.
    configure_logs("critical", "text")
    # Without the mouse the terminal keeps its own way to mark and copy text.
    Top(client, place, first, SystemClock()).run(mouse=False)


def _printable(text: str) -> str:
    return text if "utf" in (sys.stdout.encoding or "").lower() else text.translate(ASCII)
