"""How values are shown to a person or to a program."""

import json
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import typer

from herdsman.core.printable import printable_lines


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


class Layout(StrEnum):
    """How a list may look."""

    TABLE = "table"
    WIDE = "wide"
    """Every column there is."""
    JSON = "json"


def echo(text: str = "", *, err: bool = False) -> None:
    """The one way to print: what jobs, people and services wrote may be in it, and is shown, never obeyed."""
    typer.echo(printable_lines(text), err=err)


def print_json(value: object) -> None:
    echo(json.dumps(value, indent=2, default=_plain))


def indented(text: str, by: int) -> str:
    """Its further lines begin further in, so that nobody takes them for lines of ours."""
    return text.replace("\n", "\n" + " " * by)


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def ago(then: datetime | None) -> str:
    return "never" if then is None else f"{age(then)} ago"


def age(then: datetime) -> str:
    """`42s`, `7m`, `3h`, `2d`."""
    seconds = max(0, round((datetime.now(UTC) - then).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
