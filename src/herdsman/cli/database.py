"""`herdsman db`: make the tables, bring them up to date, look whether all is well."""

import typer

from herdsman.cli.context import services_here, settings_here
from herdsman.cli.output import Yes, ask_first, echo
from herdsman.db.checks import inspect_server, latest, require_current, require_undamaged
from herdsman.db.upgrade import upgrade
from herdsman.fleet import installation_sql
from herdsman.fleet.manual import adopt
from herdsman.fleet.model import moved
from herdsman.server.wiring import open_control, open_database

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
    require_undamaged(here)
    require_current(here)
    echo(f"schema   {latest()}, guards in place")


@database.command("adopt")
def adopt_command(yes: Yes = False) -> None:
    """Say that this database, and no other, is in use here: after it was moved, copied or restored from a backup."""
    settings = settings_here()
    services = services_here(settings)
    reconciler = open_control(settings, services, spawns=False).reconciler
    known = services.database.read(installation_sql.find)
    here = services.database.read(installation_sql.place_of)
    doubt = reconciler.observer.observe_readonly().doubt or ("" if known is None else known.hint)
    if known is None or not doubt:
        echo("nothing to adopt: the database is where it was used last, and nobody knows more than it does")
        return
    echo("\n".join(line for line in (doubt, moved(known.place, here)) if line))
    ask_first(
        "Is it the only one in use? Instances that it once started and that none of its workers owns are ended"
        f" after {settings.providers.orphan_grace_sec:g} s.",
        yes=yes,
    )
    adopt(reconciler)
    echo("adopted: the next cycle starts and ends instances again")


def _upgrade() -> None:
    here = open_database(settings_here())
    revision = upgrade(here)
    echo(f"{inspect_server(here)} is at schema {revision}, guards in place")
