"""What commands begin with: the settings, and for those that work on the database, the database."""

from collections.abc import Mapping

from herdsman.cli.output import echo
from herdsman.control.services import Services
from herdsman.settings import Settings, advice, load_settings
from herdsman.settings.surroundings import instance_name
from herdsman.store.revisions import require_current
from herdsman.telemetry.logs import configure_logs
from herdsman.wiring import open_services


def settings_here(given: Mapping[str, str] | None = None) -> Settings:
    """The settings in force; `given` stands above all others, as the command line does."""
    settings = load_settings(given=given)
    for warning in advice(settings):
        echo(f"warning: {warning}", err=True)
    logs = settings.logs
    configure_logs(logs.log_level, logs.log_format, file=logs.log_file, instance=instance_name(settings))
    return settings


def services_here(settings: Settings | None = None) -> Services:
    """The commands, on a database that is known to be in order."""
    services = open_services(settings or settings_here())
    require_current(services.database)
    return services
