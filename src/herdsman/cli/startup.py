"""`herdsman render-startup`: what a pod at Runpod would run."""

from collections.abc import Mapping
from typing import Any, cast

import typer
from pydantic import SecretStr

from herdsman.cli.opening import settings_here
from herdsman.core.errors import InvalidSettings
from herdsman.providers.runpod import RunpodOptions, render_startup
from herdsman.settings.runpod import runpod_options

HIDDEN = "***"


def render_startup_command() -> None:
    """Print the script that a pod at Runpod would run, with secrets hidden."""
    options = _options(cast("dict[str, Any]", runpod_options(settings_here())))
    for name in ("HERDSMAN_WORKER_ID", *options.environment):
        typer.echo(f"# {name}={HIDDEN}")
    script = hide(render_startup(options), options.environment)
    typer.echo(script or "# the image runs its own command (AUTO_START_WORKER_PROCESS is false)")


def hide(script: str, secrets: Mapping[str, SecretStr]) -> str:
    """A person may have written the value of a variable into a command as well."""
    for secret in secrets.values():
        if value := secret.get_secret_value():
            script = script.replace(value, HIDDEN)
    return script


def _options(given: dict[str, Any]) -> RunpodOptions:
    try:
        return RunpodOptions(**given)
    except TypeError as error:
        raise InvalidSettings(f"the options of Runpod do not fit: {error}") from error
