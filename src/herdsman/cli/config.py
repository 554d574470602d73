"""`herdsman config` and `render-startup`: every setting and its origin, how timeouts fit together, what a pod runs."""

import json
from itertools import groupby
from textwrap import fill
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from herdsman.cli.output import Output, OutputOption, echo, print_json
from herdsman.cli.services import settings_here
from herdsman.errors import InvalidRequest, InvalidSettings
from herdsman.ids import DEFAULT_POOL
from herdsman.settings import RELATIONS, Relation, Settings, load_settings, rows
from herdsman.settings.options import runpod_options

_INDENT = " " * 4
HIDDEN = "***"
GIVEN = ("HERDSMAN_WORKER_ID", "HERDSMAN_API_URL", "HERDSMAN_BOOTSTRAP_TOKEN")
"""What a control plane with an API adds for each worker."""


def config(
    output: OutputOption = Output.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show how the timeouts fit together.")] = False,
) -> None:
    settings = load_settings()
    as_json = as_json or output is Output.JSON
    if explain:
        _show_relations(settings, as_json=as_json)
    elif as_json:
        fields = ("value", "default", "origin", "group", "description")
        print_json({row.name: {field: getattr(row, field) for field in fields} for row in rows(settings)})
    else:
        table = Table(box=None, padding=(0, 1, 0, 0))
        table.add_column("setting", no_wrap=True)
        table.add_column("value", overflow="fold")
        table.add_column("origin", no_wrap=True)
        table.add_column("default", overflow="fold")
        for group, members in groupby(rows(settings), key=lambda row: row.group):
            table.add_row()
            table.add_row(Text(group, style="bold"))
            for row in members:
                style = "" if row.origin == "default" else "bold"
                value, default = Text(_cell(row.value), style=style), Text(_cell(row.default))
                table.add_row(row.name, value, Text(row.origin, style=style), default)
        Console().print(table)


def _show_relations(settings: Settings, *, as_json: bool) -> None:
    def status(each: Relation) -> str:
        """Never worse than a warning: settings that break a required relation do not load."""
        return "ok" if each.check(settings) else "warning"

    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "relation": each.text,
                    "numbers": each.numbers(settings),
                    "unless": each.unless or None,
                    "status": status(each),
                    "reason": each.reason,
                }
                for each in RELATIONS
            ]
        )
        return
    console = Console(highlight=False)
    for each in RELATIONS:
        style = "bold" if status(each) == "ok" else "bold yellow"
        console.print(Text(f"{status(each)}: {each.name}", style=style))
        unless = f" (unless {each.unless})" if each.unless else ""
        for line in (each.text + unless, each.numbers(settings), each.reason):
            wrapped = fill(line, console.width - 1, initial_indent=_INDENT, subsequent_indent=_INDENT)
            console.print(Text(wrapped))


def _cell(value: object) -> str:
    if value is None or value == []:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value)


def render_startup_command(pool: Annotated[str, typer.Option(help="The pool of the pod.")] = DEFAULT_POOL) -> None:
    from herdsman.providers.runpod import RunpodOptions, render_startup  # noqa: PLC0415  (config needs no provider)

    settings = settings_here()
    known = {DEFAULT_POOL: settings, **settings.by_pool}
    if pool not in known:
        raise InvalidRequest(f"there is no pool {pool!r}; the settings name: {', '.join(known)}")
    given = cast("dict[str, Any]", runpod_options(known[pool]))
    try:
        options = RunpodOptions(**{name: value for name, value in given.items() if name != "pools"})
    except TypeError as error:
        raise InvalidSettings(f"the Runpod options are not valid: {error}") from error
    for name in (*GIVEN, *options.environment):
        echo(f"# {name}={HIDDEN}")
    script = render_startup(options)
    # The value of a secret variable may be written into a command as well.
    for secret in options.environment.values():
        script = script.replace(secret.get_secret_value() or HIDDEN, HIDDEN)
    echo(script or "# the image runs its own command (AUTO_START_WORKER_PROCESS is false)")
