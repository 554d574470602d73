"""`herdsman up`: everything on this machine, until Ctrl-C. `herdsman serve`: one replica of the control plane."""

import time
from pathlib import Path
from typing import Annotated

import typer

from herdsman.cli.context import settings_here
from herdsman.cli.lazy import SERVER, needed
from herdsman.cli.machine import for_this_machine, on_a_free_port, require_room
from herdsman.cli.output import echo, step
from herdsman.cli.worker import Choices, Commands, Modules, Names, sources_of
from herdsman.control.whereabouts import Announced, shown_database, whereabouts
from herdsman.core.errors import Conflict, InvalidSettings
from herdsman.settings import Settings, load_settings
from herdsman.settings.surroundings import harmless_environment, keep_secrets
from herdsman.store.revisions import latest, require_current
from herdsman.store.server import require_undamaged
from herdsman.store.upgrade import upgrade
from herdsman.wiring import open_services, require_address
from herdsman.worker.reload import SourceCheck

_LOOK_S = 0.05


def up(
    fake_gpus: Annotated[
        int | None, typer.Option(min=1, help="Pretend that this machine has so many GPUs.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port of the API; 0 takes any that is free.")
    ] = None,
    handler: Names = None,
    module: Modules = None,
    exec_: Commands = None,
) -> None:
    """Prepare the database and run everything on this machine, until Ctrl-C: API, control loop, workers."""
    with needed(SERVER.format("up")):
        from herdsman.cli import replica  # noqa: PLC0415  (imports the server, which takes a while)
    given = {"FAKE_GPUS": fake_gpus, "API_PORT": port}
    told = {name: str(value) for name, value in given.items() if value is not None}
    own = _own_handlers(handler or [], module or [], exec_ or [])
    settings = for_this_machine(settings_here(told | own))
    keep_secrets(exec_ or ())
    if (there := whereabouts(settings).running()) is not None:
        _require_same_database(there, settings)
        replica.tell_already(there)
        return
    settings = on_a_free_port(settings)
    require_address(settings)
    require_room(settings)
    if own:
        _require_handlers(settings)
    with step("preparing the database"):
        services = open_services(settings)
        require_undamaged(services.database)
        schema = upgrade(services.database)
    kept = replica.run(settings, services, schema, "up")
    echo(f"stopped; every job is kept in the database{kept}")


def _own_handlers(functions: list[str], modules: list[str], commands: list[str]) -> dict[str, str]:
    """What the workers of this machine are to run, beside what the settings say already."""
    if not (functions or modules or commands):
        return {}
    known = load_settings().worker
    return {
        "WORKER_HANDLERS": ",".join([*known.worker_handlers, *functions]),
        "WORKER_MODULES": ",".join([*known.worker_modules, *modules]),
        "WORKER_EXEC": "\n".join([*([known.worker_exec] if known.worker_exec else []), *commands]),
    }


def _require_handlers(settings: Settings) -> None:
    """A slip in them is told here, in one sentence, and not by workers that end one after the other."""
    sources = sources_of(settings, Choices(directory=Path.cwd()))
    check = SourceCheck(sources, harmless_environment())
    try:
        with step("loading the handlers"):
            while (found := check.verdict()) is None:
                time.sleep(_LOOK_S)
    finally:
        check.close()
    if found.error is not None:
        raise InvalidSettings(f"the handlers cannot be loaded:\n{found.error}")


def serve() -> None:
    """Run one replica of the control plane, for production: API and control loop, until SIGTERM."""
    with needed(SERVER.format("serve")):
        from herdsman.cli import replica  # noqa: PLC0415
    settings = settings_here()
    keep_secrets()
    require_address(settings)
    services = open_services(settings)
    require_undamaged(services.database)
    require_current(services.database)
    kept = replica.run(settings, services, latest(), "serve")
    echo(f"stopped; every job is kept in the database{kept}")


def _require_same_database(there: Announced, settings: Settings) -> None:
    """Two of them on one directory would take each other's workers for strays."""
    if there.database != shown_database(settings):
        assert there.process is not None
        raise Conflict(
            f"herdsman {there.command} runs here already, as process {there.process.pid}, on the database"
            f" {there.database}: stop it with herdsman down, or give this one a LOCAL_STATE_DIR of its own"
        )
