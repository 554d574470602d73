"""`herdsman render-startup`: what a pod at Runpod would run."""

from collections.abc import Mapping
from typing import Annotated, Any, cast

import typer
from pydantic import SecretStr

from herdsman.cli.context import settings_here
from herdsman.cli.output import echo
from herdsman.errors import InvalidRequest, InvalidSettings
from herdsman.ids import DEFAULT_POOL
from herdsman.providers.runpod import RunpodOptions, render_startup
from herdsman.settings.options import runpod_options

HIDDEN = "***"
GIVEN = ("HERDSMAN_WORKER_ID", "HERDSMAN_API_URL", "HERDSMAN_BOOTSTRAP_TOKEN")
"""What a control plane with an API adds for each worker."""


def render_startup_command(
    pool: Annotated[str, typer.Option(help="The pool whose pod it would be.")] = DEFAULT_POOL,
) -> None:
    """Print the script that a pod at Runpod would run, with secrets hidden."""
    settings = settings_here()
    known = {DEFAULT_POOL: settings, **settings.by_pool}
    if pool not in known:
        raise InvalidRequest(f"there is no pool {pool!r}; the settings name: {', '.join(known)}")
    of_pool = known[pool]
    options = _options(cast("dict[str, Any]", runpod_options(of_pool)))
    for name in (*GIVEN, *options.environment):
        echo(f"# {name}={HIDDEN}")
    script = hide(render_startup(options), options.environment)
    echo(script or "# the image runs its own command (AUTO_START_WORKER_PROCESS is false)")


def hide(script: str, secrets: Mapping[str, SecretStr]) -> str:
    """A person may have written the value of a variable into a command as well."""
    for secret in secrets.values():
        if value := secret.get_secret_value():
            script = script.replace(value, HIDDEN)
    return script


def _options(given: dict[str, Any]) -> RunpodOptions:
    try:
        return RunpodOptions(**{name: value for name, value in given.items() if name != "pools"})
    except TypeError as error:
        raise InvalidSettings(f"the options of Runpod do not fit: {error}") from error
