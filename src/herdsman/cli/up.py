"""`herdsman up`: everything on this machine, until Ctrl-C."""

import signal
from datetime import timedelta
from threading import Event
from typing import Annotated

import typer

from herdsman.cli.opening import settings_here
from herdsman.control.commands import count_jobs
from herdsman.control.services import Services
from herdsman.providers.local.gpus import count_gpus
from herdsman.settings import Origin, Settings
from herdsman.store.server import inspect_server
from herdsman.store.upgrade import upgrade
from herdsman.wiring import Control, open_control, open_service, open_services

LOOK_OFTEN = timedelta(seconds=2)


def up(
    fake_gpus: Annotated[
        int | None, typer.Option(min=1, help="Pretend that this machine has so many GPUs.")
    ] = None,
) -> None:
    """Prepare the database, keep the jobs moving and the fleet in shape, until Ctrl-C."""
    settings = settings_here({} if fake_gpus is None else {"FAKE_GPUS": str(fake_gpus)})
    services = open_services(settings)
    revision = upgrade(services.database)
    control = open_control(settings, services)
    _greet(services, settings, revision)
    stopping = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stopping.set())
    open_service(settings, services, control, poll=_poll(settings)).run(stopping)
    _send_home(control)
    services.database.close()
    typer.echo("stopped; every job is kept in the database")


def _poll(settings: Settings) -> timedelta:
    """Looking at processes of this machine costs nothing, so a worker need not wait to be noticed."""
    chosen = timedelta(seconds=settings.health.orchestrator_poll_sec)
    usual = settings.origin("ORCHESTRATOR_POLL_SEC") is Origin.DEFAULT
    return min(chosen, LOOK_OFTEN) if usual and settings.providers.provider == "local" else chosen


def _send_home(control: Control) -> None:
    """Workers of this machine finish the job they hold and leave; rented machines are left to the next leader."""
    provider = control.provider
    if provider.name != "local":
        return
    workers = provider.list_instances()
    for worker in workers:
        provider.terminate(worker.ref)
    if workers:
        typer.echo(f"{len(workers)} workers of this machine finish their jobs and leave")


def _greet(services: Services, settings: Settings, revision: str) -> None:
    server = inspect_server(services.database)
    counts = {state: count for state, count in count_jobs(services).items() if count}
    held = ", ".join(f"{count} {state}" for state, count in counts.items()) or "none yet"
    typer.echo(f"database  {server}, schema {revision}")
    typer.echo(f"          {services.database.engine.url.render_as_string(hide_password=True)}")
    for warning in server.warnings:
        typer.echo(f"warning   {warning}")
    scaling = settings.scaling
    size = f"{scaling.min_active_gpus} to {scaling.max_active_gpus} workers"
    typer.echo(f"fleet     {settings.providers.provider}, {size}, policy {scaling.scaling_policy}")
    if settings.providers.provider == "local" and not settings.local.fake_gpus and count_gpus() == 0:
        typer.echo("warning   this machine has no GPU; herdsman up --fake-gpus 2 pretends that it has two")
    typer.echo(f"jobs      {held}")
    typer.echo("next      in another terminal: herdsman submit demo --payload '{\"seconds\": 2}'")
    typer.echo("          then: herdsman jobs, herdsman workers        stop with Ctrl-C")
