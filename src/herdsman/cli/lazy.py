"""Commands that are loaded when they are asked for: most need the database, and a worker's machine has none."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command as build

from herdsman.core.errors import InvalidSettings


@dataclass(frozen=True, slots=True)
class Entry:
    place: str
    """The module under `herdsman.cli`, and the name in it."""
    hidden: bool = False


def group(entries: Mapping[str, Entry]) -> type[TyperGroup]:
    class Lazy(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  (the signature is typer's)
            return list(entries)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
            entry = entries.get(cmd_name)
            return None if entry is None else _load(cmd_name, entry)

    return Lazy


def _load(name: str, entry: Entry) -> Any:
    module, _, attribute = entry.place.partition(":")
    try:
        found = getattr(import_module(f"herdsman.cli.{module}"), attribute)
    except ModuleNotFoundError as error:
        if (error.name or "herdsman").startswith("herdsman"):
            raise
        found = _lacking(name, error.name or "")
    if isinstance(found, typer.Typer):
        command = build(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        command = build(alone)
    command.name, command.hidden = name, entry.hidden
    return command


def _lacking(name: str, package: str) -> typer.Typer:
    """In its place: the list of commands stays whole, and who uses it learns what to install."""
    alone = typer.Typer(add_completion=False)

    @alone.command(name, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def refuse() -> None:  # pyright: ignore[reportUnusedFunction]  (typer has it)
        """Needs the packages of the server, which are not installed here."""
        raise InvalidSettings(
            f"herdsman {name} needs the package {package}, which is not installed here:"
            " a control plane needs herdsman[server] and the driver of its database"
        )

    return alone
