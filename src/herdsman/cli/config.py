"""`herdsman config`: every setting, where its value came from, and how the timeouts fit together."""

import json
from itertools import groupby
from textwrap import fill
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from herdsman.cli.output import Output, print_json
from herdsman.settings import RELATIONS, Relation, Settings, load_settings, rows

_INDENT = " " * 4


def config(
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print it.")] = Output.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show how the timeouts fit together.")] = False,
) -> None:
    """Show every setting with its origin and its default; secrets stay hidden."""
    settings = load_settings()
    if as_json or output is Output.JSON:
        print_json(_relations(settings) if explain else _values(settings))
    elif explain:
        _print_relations(settings)
    else:
        _print_values(settings)


def _values(settings: Settings) -> dict[str, dict[str, object]]:
    return {
        row.name: {
            "value": row.value,
            "default": row.default,
            "origin": row.origin,
            "group": row.group,
            "description": row.description,
        }
        for row in rows(settings)
    }


def _relations(settings: Settings) -> list[dict[str, object]]:
    return [
        {
            "name": each.name,
            "relation": each.text,
            "numbers": each.numbers(settings),
            "unless": each.unless or None,
            "state": _state(each, settings),
            "why": each.reason,
        }
        for each in RELATIONS
    ]


def _state(relation: Relation, settings: Settings) -> str:
    """Never worse than a warning: settings that break a required relation do not load."""
    return "ok" if relation.check(settings) else "warning"


def _print_values(settings: Settings) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("origin", no_wrap=True)
    table.add_column("default", overflow="fold")
    for group, members in groupby(rows(settings), key=lambda row: row.group):
        table.add_row()
        table.add_row(Text(group, style="bold"))
        for row in members:
            changed = "" if row.origin == "default" else "bold"
            cells = (
                Text(_cell(row.value), style=changed),
                Text(row.origin, style=changed),
                Text(_cell(row.default)),
            )
            table.add_row(row.name, *cells)
    Console().print(table)


def _cell(value: object) -> str:
    if value is None or value == []:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value)


def _print_relations(settings: Settings) -> None:
    console = Console(highlight=False)
    for each in RELATIONS:
        state = _state(each, settings)
        unless = f" (unless {each.unless})" if each.unless else ""
        console.print(Text(f"{state}: {each.name}", style="bold" if state == "ok" else "bold yellow"))
        for line in (each.text + unless, each.numbers(settings), each.reason):
            console.print(
                Text(fill(line, console.width - 1, initial_indent=_INDENT, subsequent_indent=_INDENT))
            )
