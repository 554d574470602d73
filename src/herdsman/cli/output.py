"""What commands print, and what they ask first: values for people and for programs, hints, questions, progress."""

import json
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated

import typer

from herdsman.text import printable_lines


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]


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


def counted(number: int, what: str) -> str:
    """`1 job`, `1,204 jobs`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def ago(then: datetime | None) -> str:
    return "never" if then is None else f"{age(then)} ago"


def age(then: datetime) -> str:
    """`42s`, `7m`, `3h`, `2d`."""
    seconds = max(0, round((datetime.now(UTC) - then).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


_NOT_ONE_OF = re.compile(r"^(?:Value error, )?('(.*)' is not one of (.+?))\.?$", re.DOTALL)


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, to be put behind a sentence; nothing where nothing is near."""
    near = get_close_matches(typed, sorted(set(known)), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def with_what_was_meant(error: typer.BadParameter) -> typer.BadParameter:
    """The word of a choice that is near, behind the list of all of them."""
    found = _NOT_ONE_OF.match(error.message)
    if found is not None:
        error.message = found[1] + did_you_mean(found[2], re.findall(r"'([^']+)'", found[3]))
    return error


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


def ask_first(question: str, *, yes: bool) -> None:
    """Ends the command unless somebody agrees; where nobody can answer, nobody does."""
    if not yes:
        typer.confirm(printable_lines(question), abort=True, err=True)


@contextmanager
def step(doing: str) -> Generator[None]:
    """Shown while it goes on, to people at a terminal; what came of it is a `line`."""
    from rich.console import Console  # noqa: PLC0415  (few commands need it)

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(f"{doing} ..."):
            yield
    else:
        yield


def line(what: str, text: object) -> None:
    echo(f"{what:<8}  {text}")
