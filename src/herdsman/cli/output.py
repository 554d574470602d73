"""Options that commands share, printing for people and for programs, suggestions, questions and progress."""

import inspect
import json
import re
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import MISSING, asdict, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, get_type_hints

import typer

from herdsman.text import printable_lines


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer sees it: of each parameter whose type is a dataclass, the fields are its options."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    shown: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if (group := groups.get(parameter.name)) is None:
            shown.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[parameter.name]))
            continue
        inner = get_type_hints(group, include_extras=True)
        for each in fields(group):
            empty = inspect.Parameter.empty if each.default is MISSING else each.default
            shown.append(
                inspect.Parameter(each.name, parameter.KEYWORD_ONLY, default=empty, annotation=inner[each.name])
            )

    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    called.__doc__, called.__name__ = command.__doc__, command.__name__
    called.__annotations__ = {each.name: each.annotation for each in shown}
    called.__signature__ = inspect.Signature(shown)  # pyright: ignore[reportFunctionMemberAccess]
    return called


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]


class Layout(StrEnum):
    """Output formats of a list; `wide` has every column."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


def echo(text: str = "", *, err: bool = False) -> None:
    """The one way to print. Text of jobs, people and services may be in it: control characters are shown, not obeyed."""
    # Almost all text holds nothing that a terminal would obey, and needs no closer look.
    typer.echo(text if text.isprintable() else printable_lines(text), err=err)


def print_json(value: object) -> None:
    echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: object) -> object:
    if (dump := getattr(value, "model_dump", None)) is not None:  # not by its class: pydantic takes long to import
        return dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else str(value)


def printed_json(output: Output, value: object) -> bool:
    """Prints it where JSON is wanted; False where a person is to read it."""
    if output is Output.JSON:
        print_json(value)
    return output is Output.JSON


def indented(text: str, by: int) -> str:
    """Indents all lines but the first, so that foreign text cannot be taken for lines of ours."""
    return text.replace("\n", "\n" + " " * by)


def counted(number: int, what: str) -> str:
    """`1 job`, `1,204 jobs`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def ago(then: datetime | None) -> str:
    return "never" if then is None else f"{age(then)} ago"


def age(then: datetime) -> str:
    return span((datetime.now(UTC) - then).total_seconds())


def span(seconds: float) -> str:
    """`42s`, `7m`, `3h`, `2d`."""
    whole = max(0, round(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


_NOT_ONE_OF = re.compile(r"^(?:Value error, )?('(.*)' is not one of (.+?))\.?$", re.DOTALL)


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, to be appended to a sentence; empty where nothing is similar."""
    near = get_close_matches(typed, sorted(set(known)), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def with_suggestion(error: typer.BadParameter) -> typer.BadParameter:
    """For a value that is not one of the choices: the most similar ones."""
    found = _NOT_ONE_OF.match(error.message)
    if found is not None:
        error.message = found[1] + did_you_mean(found[2], re.findall(r"'([^']+)'", found[3]))
    return error


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


def ask_first(question: str, *, yes: bool) -> None:
    """Ends the command unless a person agrees; without a terminal nobody does."""
    if not yes:
        typer.confirm(printable_lines(question), abort=True, err=True)


@contextmanager
def step(doing: str) -> Generator[None]:
    """A spinner for people at a terminal."""
    from rich.console import Console  # noqa: PLC0415  (few commands need it)

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(f"{doing} ..."):
            yield
    else:
        yield


def line(what: str, text: object) -> None:
    echo(f"{what:<8}  {text}")
