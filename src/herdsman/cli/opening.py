"""What commands begin with: the settings, and the way to the jobs."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import timedelta

from herdsman.cli.door import Door
from herdsman.cli.packages import needed
from herdsman.cli.shown import echo
from herdsman.control.whereabouts import shown_database, whereabouts
from herdsman.core.errors import Unreachable
from herdsman.ports import SystemClock
from herdsman.settings import Settings, advice, load_settings
from herdsman.settings.environment import instance_name
from herdsman.telemetry.logs import configure_logs

_PATIENCE = timedelta(seconds=15)
_NO_PATIENCE = timedelta(0)


def settings_here(given: Mapping[str, str] | None = None) -> Settings:
    """The settings in force; `given` stands above all others, as the command line does."""
    settings = load_settings(given=given)
    for warning in advice(settings):
        echo(f"warning: {warning}", err=True)
    logs = settings.logs
    configure_logs(logs.log_level, logs.log_format, file=logs.log_file, instance=instance_name(settings))
    return settings


def door_here() -> Door:
    """To the server that API_URL names; without it to the one of this machine, or else to the database itself."""
    settings = settings_here()
    if settings.api.api_url is not None:
        return over_http(settings, settings.api.api_url, _PATIENCE)
    url = whereabouts(settings).api_of(shown_database(settings))
    if url is not None:
        found = over_http(settings, url, _NO_PATIENCE)
        if _answers(found):
            return found
    with database_packages():
        from herdsman.cli.direct_door import DirectDoor  # noqa: PLC0415
        from herdsman.cli.services import services_here  # noqa: PLC0415
    return DirectDoor(services_here(settings), SystemClock())


def database_packages() -> AbstractContextManager[None]:
    """They take a while to load, and a machine that uses a server does not have them."""
    return needed(
        "API_URL is not set, and without the package {} there is no other way to the jobs:"
        " set API_URL and a token, or install herdsman[server]"
    )


def over_http(settings: Settings, url: str, patience: timedelta) -> Door:
    from herdsman.cli.api_door import ApiDoor  # noqa: PLC0415  (imports the HTTP client, which takes a while)

    given, where = settings.api.api_token, whereabouts(settings)
    token, source = (
        (where.token(), str(where.admin_token)) if given is None else (given.get_secret_value(), "API_TOKEN")
    )
    return ApiDoor(url, token, SystemClock(), patience, token_from=source)


def _answers(door: Door) -> bool:
    """Whether the server that was said to be here is still there."""
    try:
        door.alive()
    except Unreachable:
        door.close()
        return False
    return True
