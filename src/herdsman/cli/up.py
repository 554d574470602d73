"""`herdsman up`: everything on this machine, until Ctrl-C. `herdsman serve`: one replica of the control plane."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from herdsman.cli.greeting import (
    tell_already,
    tell_api,
    tell_database,
    tell_fleet,
    tell_next,
    tell_when_ready,
)
from herdsman.cli.opening import settings_here
from herdsman.cli.own_machine import for_this_machine, on_a_free_port
from herdsman.cli.packages import SERVER, needed
from herdsman.cli.progress import step
from herdsman.cli.room import require_room
from herdsman.cli.shown import echo
from herdsman.cli.stopping import Stopping
from herdsman.cli.worker import Commands, Modules, Names
from herdsman.cli.working import Choices, sources_of
from herdsman.control.commands import count_jobs
from herdsman.control.first_token import first_admin_token
from herdsman.control.services import Services
from herdsman.control.whereabouts import Announced, shown_database, whereabouts
from herdsman.core.errors import Conflict, HerdsmanError, InvalidSettings
from herdsman.db.checks import latest, require_current, require_undamaged
from herdsman.db.upgrade import upgrade
from herdsman.ports import Provider
from herdsman.server.wiring import open_services, require_address, stored_logs
from herdsman.settings import Settings, load_settings
from herdsman.settings.environment import harmless_environment, keep_secrets
from herdsman.settings.options import LOCAL
from herdsman.store import sight
from herdsman.worker.reload import SourceCheck

if TYPE_CHECKING:
    from herdsman.server.replica import Replica

_LOOK_S = 0.05
_OBSERVE_S = 0.2


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
        from herdsman.server.replica import open_replica  # noqa: PLC0415  (takes a while)
    given = {"FAKE_GPUS": fake_gpus, "API_PORT": port}
    told = {name: str(value) for name, value in given.items() if value is not None}
    own = _own_handlers(handler or [], module or [], exec_ or [])
    settings = for_this_machine(settings_here(told | own))
    keep_secrets(exec_ or ())
    if (there := whereabouts(settings).running()) is not None:
        _already(there, settings)
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
    _run(settings, services, schema, "up", open_replica)


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
        from herdsman.server.replica import open_replica  # noqa: PLC0415
    settings = settings_here()
    keep_secrets()
    require_address(settings)
    services = open_services(settings)
    require_undamaged(services.database)
    require_current(services.database)
    _run(settings, services, latest(), "serve", open_replica)


def _already(there: Announced, settings: Settings) -> None:
    """Two of them on one directory would take each other's workers for strays."""
    if there.database != shown_database(settings):
        assert there.process is not None
        raise Conflict(
            f"herdsman {there.command} runs here already, as process {there.process.pid}, on the database"
            f" {there.database}: stop it with herdsman down, or give this one a LOCAL_STATE_DIR of its own"
        )
    tell_already(there)


def _run(
    settings: Settings,
    services: Services,
    schema: str,
    command: str,
    open_replica: "Callable[[Settings, Services], Replica]",
) -> None:
    """Until it is told to stop; then says how many jobs there are."""
    try:
        with stored_logs(settings, services.database):
            tell_database(services, schema)
            kept = _serve(settings, services, command, open_replica)
    finally:
        services.database.close()
    echo(f"stopped; every job is kept in the database{kept}")


def _serve(
    settings: Settings,
    services: Services,
    command: str,
    open_replica: "Callable[[Settings, Services], Replica]",
) -> str:
    where = whereabouts(settings)
    replica = open_replica(settings, services)
    with step("starting the API"):
        replica.start()
        secret = first_admin_token(services, replica.state.keyring, where.admin_token)
    stopping = Stopping()  # before anybody is told to type Ctrl-C
    try:
        where.announce(replica.server.url, shown_database(settings), command)
        tell_api(replica.server.url, secret, where.admin_token)
        tell_fleet(services, settings)
        tell_next()
        tell_when_ready(services, settings, stopping)
        services.database.in_service = True
        with where.occupied(replica.control.leadership.holder):
            replica.run(stopping)
    finally:
        _drain_local_workers(replica.control.provider, stopping)
        where.withdraw()
        replica.stop()
        kept = _jobs_left(services) + _machines_left(replica.control.provider, services)
    return kept


def _drain_local_workers(provider: Provider, stopping: Stopping) -> None:
    """Workers of this machine finish the job they hold and leave; rented machines are left to the next leader."""
    told = 0
    if provider.name != LOCAL:
        return
    while workers := provider.list_instances():
        if told != stopping.asked or not told:
            told = stopping.asked or 1
            for worker in workers:
                provider.terminate(worker.ref)
            what = "finish their jobs and leave" if told == 1 else "give their jobs back and leave"
            echo(f"{len(workers)} workers of this machine {what}; Ctrl-C again does not wait for them")
        if told > 2:
            return
        time.sleep(_OBSERVE_S)


def _jobs_left(services: Services) -> str:
    try:
        counts = {state: count for state, count in count_jobs(services).items() if count}
    except HerdsmanError:
        return ""
    return f": {', '.join(f'{count} {state}' for state, count in counts.items())}" if counts else ""


def _machines_left(provider: Provider, services: Services) -> str:
    """What goes on costing money when nobody is there to end it."""
    if provider.name == LOCAL:
        return ""
    try:
        left = sum(
            each.alive and bool(each.instance_name) for each in services.database.read(sight.see_workers)
        )
    except HerdsmanError:
        return ""
    if not left:
        return ""
    name = provider.name
    goes_on = (
        f"1 machine of {name} runs on and is" if left == 1 else f"{left} machines of {name} run on and are"
    )
    return f"; {goes_on} billed until a control plane ends them"
