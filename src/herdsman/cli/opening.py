"""What commands that work on the database begin with."""

from collections.abc import Mapping

import typer

from herdsman.control.services import Services
from herdsman.settings import Settings, advice, load_settings
from herdsman.store.upgrade import require_current
from herdsman.telemetry.logs import configure_logs
from herdsman.wiring import open_services


def settings_here(given: Mapping[str, str] | None = None) -> Settings:
    """The settings in force; `given` stands above all others, as the command line does."""
    settings = load_settings(given=given)
    for warning in advice(settings):
        typer.echo(f"warning: {warning}", err=True)
    configure_logs(settings.logs.log_level, settings.logs.log_format)
    return settings


def services_here() -> Services:
    """The commands, on a database that is known to be in order."""
    services = open_services(settings_here())
    require_current(services.database)
    return services
