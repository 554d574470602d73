"""`herdsman up`: everything on this machine, until Ctrl-C. `herdsman serve`: one replica of the control plane."""

from datetime import timedelta
from threading import Event
from typing import Annotated

import typer

from herdsman.api.opening import Api, open_api
from herdsman.cli.greeting import (
    tell_already,
    tell_api,
    tell_database,
    tell_fleet,
    tell_next,
    tell_when_ready,
)
from herdsman.cli.opening import settings_here
from herdsman.cli.own_machine import for_this_machine
from herdsman.cli.progress import step
from herdsman.cli.room import require_room
from herdsman.cli.stopping import Stopping
from herdsman.control.commands import count_jobs
from herdsman.control.first_token import first_admin_token
from herdsman.control.services import Services
from herdsman.control.whereabouts import Announced, shown_database, whereabouts
from herdsman.control.worker_access import WorkerAccess
from herdsman.core.errors import Conflict, HerdsmanError
from herdsman.settings import Origin, Settings
from herdsman.store.upgrade import latest, require_current, upgrade
from herdsman.wiring import Control, open_control, open_keyring, open_service, open_services

LOOK_OFTEN = timedelta(seconds=1)
_GLANCE_S = 0.2


def up(
    fake_gpus: Annotated[
        int | None, typer.Option(min=1, help="Pretend that this machine has so many GPUs.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port of the API; 0 takes any that is free.")
    ] = None,
) -> None:
    """Prepare the database and run everything on this machine, until Ctrl-C: API, control loop, workers."""
    given = {"FAKE_GPUS": fake_gpus, "API_PORT": port}
    told = {name: str(value) for name, value in given.items() if value is not None}
    settings = for_this_machine(settings_here(told))
    if (there := whereabouts(settings).running()) is not None:
        _already(there, settings)
        return
    require_room(settings)
    with step("preparing the database"):
        services = open_services(settings)
        schema = upgrade(services.database)
    kept = _run(settings, services, schema, "up")
    typer.echo(f"stopped; every job is kept in the database{kept}")


def serve() -> None:
    """Run one replica of the control plane, for production: API and control loop, until SIGTERM."""
    settings = settings_here()
    services = open_services(settings)
    require_current(services.database)
    _run(settings, services, latest(), "serve")
    typer.echo("stopped; rented machines are left to the next leader")


def _already(there: Announced, settings: Settings) -> None:
    """Two of them on one directory would take each other's workers for strays."""
    if there.database != shown_database(settings):
        assert there.process is not None
        raise Conflict(
            f"herdsman {there.command} runs here already, as process {there.process.pid}, on the database"
            f" {there.database}: stop it with herdsman down, or give this one a LOCAL_STATE_DIR of its own"
        )
    tell_already(there)


def _run(settings: Settings, services: Services, schema: str, command: str) -> str:
    """Until it is told to stop; then how many jobs there are."""
    tell_database(services, schema)
    keyring, where = open_keyring(settings, services), whereabouts(settings)
    url = settings.api.api_url
    access = WorkerAccess(services=services, keyring=keyring, url=lambda: url or api.server.url)
    control = open_control(settings, services, access)
    api = open_api(settings, services, keyring, control)
    with step("starting the API"):
        api.start()
        secret = first_admin_token(services, keyring, where.admin_token)
    stopping = Stopping()  # before anybody is told to type Ctrl-C
    try:
        where.announce(api.server.url, shown_database(settings), command)
        tell_api(api.server.url, secret, where.admin_token)
        tell_fleet(services, settings)
        tell_next()
        tell_when_ready(services, settings, stopping)
        _serve(settings, services, control, api, stopping)
    finally:
        _send_home(control, stopping)
        where.withdraw()
        api.stop()
        kept = _kept(services)
        services.database.close()
    return kept


def _kept(services: Services) -> str:
    try:
        counts = {state: count for state, count in count_jobs(services).items() if count}
    except HerdsmanError:
        return ""
    return f": {', '.join(f'{count} {state}' for state, count in counts.items())}" if counts else ""


def _serve(settings: Settings, services: Services, control: Control, api: Api, stopping: Event) -> None:
    service = open_service(settings, services, control, poll=_poll(settings), on_queued=api.queued)
    service.run(stopping)


def _poll(settings: Settings) -> timedelta:
    """Looking at processes of this machine costs nothing, so a worker need not wait to be noticed."""
    chosen = timedelta(seconds=settings.health.orchestrator_poll_sec)
    usual = settings.origin("ORCHESTRATOR_POLL_SEC") is Origin.DEFAULT
    return min(chosen, LOOK_OFTEN) if usual and settings.providers.provider == "local" else chosen


def _send_home(control: Control, stopping: Stopping) -> None:
    """Workers of this machine finish the job they hold and leave; rented machines are left to the next leader."""
    provider, told = control.provider, 0
    if provider.name != "local":
        return
    while workers := provider.list_instances():
        if told != stopping.asked or not told:
            told = stopping.asked or 1
            for worker in workers:
                provider.terminate(worker.ref)
            what = "finish their jobs and leave" if told == 1 else "give their jobs back and leave"
            typer.echo(f"{len(workers)} workers of this machine {what}; Ctrl-C again does not wait for them")
        if told > 2:
            return
        Event().wait(_GLANCE_S)
