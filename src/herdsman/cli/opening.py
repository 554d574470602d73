"""What commands begin with: the settings, the database, or the way to the server."""

from collections.abc import Mapping
from datetime import timedelta

import typer

from herdsman.cli.door import Door
from herdsman.control.services import Services
from herdsman.core.errors import Unreachable
from herdsman.settings import Settings, advice, load_settings
from herdsman.store.upgrade import require_current
from herdsman.telemetry.logs import configure_logs
from herdsman.wiring import SystemClock, open_services, shown_database, whereabouts

_PATIENCE = timedelta(seconds=15)
_NO_PATIENCE = timedelta(0)


def settings_here(given: Mapping[str, str] | None = None) -> Settings:
    """The settings in force; `given` stands above all others, as the command line does."""
    settings = load_settings(given=given)
    for warning in advice(settings):
        typer.echo(f"warning: {warning}", err=True)
    configure_logs(settings.logs.log_level, settings.logs.log_format)
    return settings


def services_here(settings: Settings | None = None) -> Services:
    """The commands, on a database that is known to be in order."""
    services = open_services(settings or settings_here())
    require_current(services.database)
    return services


def door_here() -> Door:
    """To the server that API_URL names; without it to the one of this machine, or else to the database itself."""
    settings = settings_here()
    if settings.api.api_url is not None:
        return _over_http(settings, settings.api.api_url, _PATIENCE)
    url = whereabouts(settings).api_of(shown_database(settings))
    if url is not None:
        found = _over_http(settings, url, _NO_PATIENCE)
        if _answers(found):
            return found
    from herdsman.cli.direct_door import DirectDoor  # noqa: PLC0415  (imports the database, which takes a while)

    return DirectDoor(services_here(settings), SystemClock())


def _over_http(settings: Settings, url: str, patience: timedelta) -> Door:
    from herdsman.cli.api_door import ApiDoor  # noqa: PLC0415  (imports the HTTP client, which takes a while)

    given = settings.api.api_token
    token = whereabouts(settings).token() if given is None else given.get_secret_value()
    return ApiDoor(url, token, SystemClock(), patience)


def _answers(door: Door) -> bool:
    """Whether the server that was said to be here is still there."""
    try:
        door.alive()
    except Unreachable:
        door.close()
        return False
    return True
