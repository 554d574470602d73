"""Commands that are loaded when they are asked for: most need packages that not every machine has."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command as build

from herdsman.cli.output import did_you_mean, with_what_was_meant
from herdsman.errors import InvalidSettings

SERVER = (
    "herdsman {} needs the package {{}}, which is not installed here: a control plane needs herdsman[server] and the"
    " driver of its database"
)


@contextmanager
def needed(said: str) -> Generator[None]:
    """`InvalidSettings` for a package that is missing; `{}` in the sentence is its name. A bug of ours stays one."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "herdsman").startswith("herdsman"):
            raise
        raise InvalidSettings(said.format(error.name)) from error


@dataclass(frozen=True, slots=True)
class Entry:
    place: str
    """The module under `herdsman.cli`, and the name in it."""
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Offered:
    """A word to complete with, as typer's shells read it; its own class for that moves between its versions."""

    value: str
    type: str = "plain"
    help: str | None = None


def group(entries: Mapping[str, Entry]) -> type[TyperGroup]:
    class Lazy(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  (the signature is typer's)
            return list(entries)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
            entry = entries.get(cmd_name)
            return None if entry is None else _load(cmd_name, entry)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args and args[0] not in entries and not ctx.resilient_parsing:
                shown = [name for name, entry in entries.items() if not entry.hidden]
                meant = did_you_mean(args[0], shown) or "; herdsman --help lists them"
                ctx.fail(f"there is no command {args[0]!r}{meant}")
            return super().resolve_command(ctx, args)

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except typer.BadParameter as error:
                raise with_what_was_meant(error) from error

        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            """Without loading them all: a person waits for it with every key."""
            found = super(TyperGroup, self).shell_complete(ctx, incomplete)
            names = (name for name, entry in entries.items() if not entry.hidden)
            return [*(Offered(name) for name in names if name.startswith(incomplete)), *found]

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
        raise InvalidSettings(SERVER.format(name).format(package))

    return alone
