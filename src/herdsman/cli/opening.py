"""What commands begin with: the settings."""

from collections.abc import Mapping

from herdsman.cli.output import echo
from herdsman.settings import Settings, advice, load_settings
from herdsman.settings.surroundings import instance_name
from herdsman.telemetry.logs import configure_logs


def settings_here(given: Mapping[str, str] | None = None) -> Settings:
    """The settings in force; `given` stands above all others, as the command line does."""
    settings = load_settings(given=given)
    for warning in advice(settings):
        echo(f"warning: {warning}", err=True)
    logs = settings.logs
    configure_logs(logs.log_level, logs.log_format, file=logs.log_file, instance=instance_name(settings))
    return settings
