"""`herdsman top`: opens the way to the server, looks once, and shows it."""

import sys
from shutil import get_terminal_size
from typing import Annotated

import typer

from herdsman.cli.door import Door
from herdsman.cli.opening import door_here
from herdsman.cli.shown import echo
from herdsman.cli.top.frame import frame
from herdsman.cli.top.seen import Seen, look
from herdsman.cli.top.words import ASCII
from herdsman.control.whereabouts import shown_database, whereabouts
from herdsman.core.errors import InvalidSettings
from herdsman.ports import SystemClock
from herdsman.settings import load_settings
from herdsman.telemetry.logs import configure_logs


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame as plain text, and exit.")] = False,
) -> None:
    """Watch the herd in the terminal: queues, workers, jobs, money and decisions."""
    door = door_here()
    place, first = _place(door), look(door)
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        echo(_printable(frame(first, place, *get_terminal_size((80, 24)))))
    else:
        _watch(door, place, first)
    door.close()


def _watch(door: Door, place: str, first: Seen) -> None:
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
    Top(door, place, first, SystemClock()).run(mouse=False)


def _place(door: Door) -> str:
    """The server's address, or the database where no server was found."""
    from herdsman.cli.api_door import ApiDoor  # noqa: PLC0415  (imports the HTTP client, which takes a while)

    settings = load_settings()
    database = shown_database(settings)
    if not isinstance(door, ApiDoor):
        return database
    return settings.api.api_url or whereabouts(settings).api_of(database) or database


def _printable(text: str) -> str:
    return text if "utf" in (sys.stdout.encoding or "").lower() else text.translate(ASCII)
