"""`herdsman db`: make the tables, bring them up to date, look whether all is well."""

import typer

from herdsman.cli.opening import settings_here
from herdsman.cli.shown import echo
from herdsman.store.revisions import latest, require_current
from herdsman.store.server import inspect_server
from herdsman.store.upgrade import upgrade
from herdsman.wiring import open_database

database = typer.Typer(
    add_completion=False, help="Make, upgrade or check the database.", no_args_is_help=True
)


@database.command()
def init() -> None:
    """Make the tables, or bring them up to date. Harmless to repeat."""
    _upgrade()


@database.command("upgrade")
def upgrade_command() -> None:
    """Bring the tables up to date. Harmless to repeat, and safe beside a running version."""
    _upgrade()


@database.command()
def check() -> None:
    """Look at the server's version and settings, the schema and the guards; change nothing."""
    here = open_database(settings_here())
    server = inspect_server(here)
    echo(f"server   {server}")
    for warning in server.warnings:
        echo(f"warning  {warning}")
    require_current(here)
    echo(f"schema   {latest()}, guards in place")


def _upgrade() -> None:
    here = open_database(settings_here())
    revision = upgrade(here)
    echo(f"{inspect_server(here)} is at schema {revision}, guards in place")
