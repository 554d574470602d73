"""The settings as options of the local provider."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

from pydantic import SecretStr

from herdsman.core.model import PoolId
from herdsman.core.policy import FleetPolicy
from herdsman.settings.catalogue import CATALOGUE
from herdsman.settings.model import Origin, Settings
from herdsman.settings.names import PREFIX
from herdsman.settings.surroundings import harmless_environment

LOCAL = "local"

# What a worker makes of its own; the others would only surprise it.
_NOT_PASSED_ON = frozenset({"API_URL", "FAKE_GPUS", "WORKER_ID", "WORKER_START_COMMAND"})

_NEEDED = frozenset({"RESULT_S3_SECRET"})


def local_deployment(settings: Settings) -> str:
    return settings.providers.deployment_id or LOCAL


def local_options(settings: Settings) -> dict[str, object]:
    command = settings.worker.worker_start_command
    return {
        "deployment": local_deployment(settings),
        "name_prefix": settings.runpod.runpod_name_prefix,
        "state_dir": Path(settings.local.local_state_dir).expanduser().absolute(),
        "fake_gpus": settings.local.fake_gpus,
        "kill_after": _patience(settings),
        "environment": worker_environment(settings),
        **({"command": tuple(shlex.split(command))} if command else {}),
    }


def within_this_machine(pools: Mapping[PoolId, FleetPolicy], gpus: int) -> Mapping[PoolId, FleetPolicy]:
    """No pool asks for more workers than there are GPUs to give them. Where none was found, nobody knows better than
    the settings. A process that is not listed has ended: nothing needs to be waited for before its GPU is given on."""
    known = {
        name: replace(pool, confirm_window=timedelta(0), exact_listings=True) for name, pool in pools.items()
    }
    return {name: _at_most(pool, gpus) for name, pool in known.items()} if gpus else known


def _at_most(pool: FleetPolicy, gpus: int) -> FleetPolicy:
    if pool.max_workers <= gpus:
        return pool
    least = min(pool.min_workers, gpus)
    return replace(pool, min_workers=least, max_workers=gpus, machine_is_full=True)


def _patience(settings: Settings) -> timedelta:
    """A worker that ends finishes its job, or stops it; only one that does neither is killed."""
    grace = settings.health.graceful_shutdown_timeout_sec + settings.jobs.cancel_grace_sec
    return timedelta(seconds=grace + 30)


def worker_environment(settings: Settings) -> dict[str, SecretStr]:
    """A worker of this machine gets the settings that we have, and of the secrets only the key of the store for its
    results: it speaks to the API, and knows nothing of the database."""
    given = {name: SecretStr(value) for name, value in harmless_environment().items()}
    for setting in CATALOGUE.values():
        if settings.origin(setting.name) is Origin.DEFAULT or setting.name in _NOT_PASSED_ON:
            continue
        if not setting.kind.secret or setting.name in _NEEDED:
            given[f"{PREFIX}{setting.name}"] = SecretStr(_typed(setting.value(settings)))
    return given


def _typed(value: object) -> str:
    """As a person would type it."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(str(part) for part in cast("tuple[object, ...]", value))
    return "" if value is None else str(value)
