"""`herdsman up`: everything that exists so far, on this machine, until Ctrl-C."""

import signal
from threading import Event

import typer

from herdsman.cli.opening import settings_here
from herdsman.control.commands import count_jobs
from herdsman.control.services import Services
from herdsman.store.server import inspect_server
from herdsman.store.upgrade import upgrade
from herdsman.wiring import open_services, open_sweeper


def up() -> None:
    """Prepare the database and keep its jobs moving until Ctrl-C."""
    settings = settings_here()
    services = open_services(settings)
    revision = upgrade(services.database)
    _greet(services, revision)
    stopping = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stopping.set())
    open_sweeper(settings, services).run(stopping)
    services.database.close()
    typer.echo("stopped; every job is kept in the database")


def _greet(services: Services, revision: str) -> None:
    server = inspect_server(services.database)
    counts = {state: count for state, count in count_jobs(services).items() if count}
    held = ", ".join(f"{count} {state}" for state, count in counts.items()) or "none yet"
    typer.echo(f"database  {server}, schema {revision}")
    typer.echo(f"          {services.database.engine.url.render_as_string(hide_password=True)}")
    for warning in server.warnings:
        typer.echo(f"warning   {warning}")
    typer.echo(f"jobs      {held}")
    typer.echo("running   due jobs are queued, jobs of silent workers taken back, old ones removed")
    typer.echo('next      in another terminal: herdsman submit demo --payload \'{"prompt": "a herd"}\'')
    typer.echo("          then: herdsman jobs        stop with Ctrl-C")
