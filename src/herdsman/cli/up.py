"""`herdsman up`: everything on this machine, until Ctrl-C. `herdsman serve`: one replica of the control plane."""

from typing import Annotated

import typer

from herdsman.cli.greeting import tell_already
from herdsman.cli.opening import settings_here
from herdsman.cli.own_machine import for_this_machine
from herdsman.cli.packages import SERVER, needed
from herdsman.cli.progress import step
from herdsman.cli.room import require_room
from herdsman.control.whereabouts import Announced, shown_database, whereabouts
from herdsman.core.errors import Conflict
from herdsman.settings import Settings
from herdsman.store.revisions import latest, require_current
from herdsman.store.server import require_undamaged
from herdsman.store.upgrade import upgrade
from herdsman.wiring import open_services, require_address


def up(
    fake_gpus: Annotated[
        int | None, typer.Option(min=1, help="Pretend that this machine has so many GPUs.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port of the API; 0 takes any that is free.")
    ] = None,
) -> None:
    """Prepare the database and run everything on this machine, until Ctrl-C: API, control loop, workers."""
    with needed(SERVER.format("up")):
        from herdsman.cli import replica  # noqa: PLC0415  (imports the server, which takes a while)
    given = {"FAKE_GPUS": fake_gpus, "API_PORT": port}
    told = {name: str(value) for name, value in given.items() if value is not None}
    settings = for_this_machine(settings_here(told))
    if (there := whereabouts(settings).running()) is not None:
        _already(there, settings)
        return
    require_address(settings)
    require_room(settings)
    with step("preparing the database"):
        services = open_services(settings)
        require_undamaged(services.database)
        schema = upgrade(services.database)
    kept = replica.run(settings, services, schema, "up")
    typer.echo(f"stopped; every job is kept in the database{kept}")


def serve() -> None:
    """Run one replica of the control plane, for production: API and control loop, until SIGTERM."""
    with needed(SERVER.format("serve")):
        from herdsman.cli import replica  # noqa: PLC0415
    settings = settings_here()
    require_address(settings)
    services = open_services(settings)
    require_undamaged(services.database)
    require_current(services.database)
    kept = replica.run(settings, services, latest(), "serve")
    typer.echo(f"stopped; every job is kept in the database{kept}")


def _already(there: Announced, settings: Settings) -> None:
    """Two of them on one directory would take each other's workers for strays."""
    if there.database != shown_database(settings):
        assert there.process is not None
        raise Conflict(
            f"herdsman {there.command} runs here already, as process {there.process.pid}, on the database"
            f" {there.database}: stop it with herdsman down, or give this one a LOCAL_STATE_DIR of its own"
        )
    tell_already(there)
