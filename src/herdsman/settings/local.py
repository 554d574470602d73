"""The settings as options of the local provider."""

import shlex
from pathlib import Path
from typing import cast

from pydantic import SecretStr

from herdsman.settings.catalogue import CATALOGUE
from herdsman.settings.model import Origin, Settings
from herdsman.settings.names import PREFIX
from herdsman.settings.surroundings import harmless_environment

LOCAL = "local"

# What a worker makes of its own; the others would only surprise it.
_NOT_PASSED_ON = frozenset({"FAKE_GPUS", "WORKER_ID", "WORKER_START_COMMAND"})


def local_deployment(settings: Settings) -> str:
    return settings.providers.deployment_id or LOCAL


def local_options(settings: Settings) -> dict[str, object]:
    command = settings.worker.worker_start_command
    return {
        "deployment": local_deployment(settings),
        "name_prefix": settings.runpod.runpod_name_prefix,
        "state_dir": Path(settings.local.local_state_dir).expanduser().absolute(),
        "fake_gpus": settings.local.fake_gpus,
        "environment": worker_environment(settings),
        **({"command": tuple(shlex.split(command))} if command else {}),
    }


def worker_environment(settings: Settings) -> dict[str, SecretStr]:
    """A worker beside us gets the settings that we have, but of the secrets only the way to the database."""
    given = {name: SecretStr(value) for name, value in harmless_environment().items()}
    for setting in CATALOGUE.values():
        if settings.origin(setting.name) is Origin.DEFAULT or setting.name in _NOT_PASSED_ON:
            continue
        if not setting.kind.secret:
            given[f"{PREFIX}{setting.name}"] = SecretStr(_typed(setting.value(settings)))
    return {**given, f"{PREFIX}DATABASE_URL": settings.database.database_url}


def _typed(value: object) -> str:
    """As a person would type it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(str(part) for part in cast("tuple[object, ...]", value))
    return "" if value is None else str(value)
