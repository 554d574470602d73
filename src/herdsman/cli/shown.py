"""How values are shown to a person or to a program."""

import json
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import typer


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


class Layout(StrEnum):
    """How a list may look."""

    TABLE = "table"
    WIDE = "wide"
    """Every column there is."""
    JSON = "json"


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, default=_plain))


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
