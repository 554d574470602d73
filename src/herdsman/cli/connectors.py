"""`herdsman connectors`: which services jobs can run on, and whether one of them is fit."""

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any, cast

import typer

from herdsman.cli.connector_check import Checked, checked
from herdsman.cli.context import settings_here
from herdsman.cli.listing import LayoutOption, Listing, Watch, show
from herdsman.cli.output import Layout, Output, echo, print_json
from herdsman.connectors.registry import GROUP, find, installed
from herdsman.core.errors import InvalidRequest, InvalidSettings
from herdsman.settings.services import COMFYUI, services_of
from herdsman.settings.urls import hide_password

connectors = typer.Typer(
    add_completion=False, invoke_without_command=True, help="List the connectors, and check a service."
)

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]


@connectors.callback()
def overview(context: typer.Context, watch: Watch = False, output: LayoutOption = Layout.TABLE) -> None:
    """List the connectors that are installed, and the types of jobs that they run here."""
    if context.invoked_subcommand is None:
        show(_look, output, watch=watch)


@connectors.command("list")
def list_connectors(watch: Watch = False, output: LayoutOption = Layout.TABLE) -> None:
    """List the connectors that are installed, and the types of jobs that they run here."""
    show(_look, output, watch=watch)


@connectors.command()
def check(
    target: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="Where it listens, or a type of jobs; else COMFYUI_URL."),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="The connector; comfyui, or what the type has.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask a service whether it can take jobs, and show what it says of itself."""
    name, options = _meant(target, kind, services_of(settings_here()))
    found = checked(name, options)
    if output is Output.JSON:
        print_json(found.document())
    else:
        _print_rows(found)
    if found.fault is not None:
        echo(f"herdsman: {found.fault}", err=True)
        raise typer.Exit(1)


def _meant(
    target: str | None, kind: str | None, services: Mapping[str, Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """The connector and its options."""
    target = COMFYUI if target is None and kind is None else target
    if target is not None and target in services and kind is None:
        options = dict(services[target])
        return options.pop("connector"), options
    if target is None or "://" not in target:
        raise InvalidRequest(_nothing_such(target, services))
    return kind or COMFYUI, {"url": target}


def _nothing_such(target: str | None, services: Mapping[str, object]) -> str:
    known = ", ".join(services) or "none"
    if target in (None, COMFYUI):
        return f"no service is named: write its URL, as in http://127.0.0.1:8188, or set COMFYUI_URL ({known} known)"
    return f"{target!r} is neither a URL, as http://127.0.0.1:8188 is, nor a type of jobs with a service: {known}"


def _look() -> Listing:
    here, types = [_installed(name) for name in installed()], _types(services_of(settings_here()))
    return Listing(
        document={"installed": here, "types": types},
        columns=("CONNECTOR", "STATE", "TYPES OF JOBS", "+FROM"),
        rows=[
            (each["name"] or "", each["fault"] or "ready", _served(types, each["name"]), each["from"] or "")
            for each in here
        ],
        empty="no connector is installed",
        below=()
        if types
        else ("no type of jobs is given to a service here: set COMFYUI_URL or WORKER_CONNECTORS_FILE",),
    )


def _served(types: Sequence[Mapping[str, str | None]], name: str | None) -> str:
    mine = [each for each in types if each["connector"] == name]
    return ", ".join(
        f"{each['type']} at {each['where']}" if each["where"] else f"{each['type']}" for each in mine
    )


def _installed(name: str) -> dict[str, str | None]:
    origins = sorted(plugin.value for plugin in entry_points(group=GROUP, name=name))
    return {"name": name, "from": " and ".join(origins), "fault": _fault(name)}


def _fault(name: str) -> str | None:
    try:
        find(name)
    except (InvalidSettings, AttributeError) as error:
        return str(error)
    return None


def _types(services: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str | None]]:
    return [
        {"type": kind, "connector": options["connector"], "where": _where(options)}
        for kind, options in sorted(services.items())
    ]


def _where(options: Mapping[str, Any]) -> str | None:
    """One address that a person knows it by. Of the options no other is shown: they may hold passwords."""
    submit: Any = options.get("submit")
    url: Any = options.get("url") or (
        cast("dict[str, Any]", submit).get("url") if isinstance(submit, dict) else None
    )
    if isinstance(url, str):
        return hide_password(url)
    written = options.get("class")
    return written if isinstance(written, str) else None


def _print_rows(found: Checked) -> None:
    for label, said in found.rows():
        echo(f"{label:<11} {said}")
