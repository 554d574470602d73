"""The settings as the other parts take them: policies of the fleet, options of providers, stores and services."""

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import SecretStr

from herdsman.errors import InvalidSettings
from herdsman.fleet.model import FleetPolicy, Promotion
from herdsman.ids import DEFAULT_POOL, PoolId
from herdsman.results.options import ResultOptions
from herdsman.settings.environment import harmless_environment
from herdsman.settings.kinds import only_from_here
from herdsman.settings.model import CATALOGUE, PREFIX, Origin, Settings

if TYPE_CHECKING:
    from herdsman.pools.rules import PoolLimits

LOCAL, RUNPOD, COMFYUI = "local", "runpod", "comfyui"


def fleet_policies(settings: Settings) -> Mapping[PoolId, FleetPolicy]:
    """The pool `default`, and those that the configuration file names."""
    named = {PoolId(name): fleet_policy(pool) for name, pool in settings.by_pool.items()}
    return {DEFAULT_POOL: fleet_policy(settings), **named}


def pool_limits(settings: Settings) -> "PoolLimits":
    """For the pools that people ask for by name, beside those of the settings."""
    from herdsman.pools.rules import PoolLimits  # noqa: PLC0415  (a worker has no use for it)

    pools = settings.pools
    return PoolLimits(
        reserved=frozenset(fleet_policies(settings)),
        most=pools.gpu_pool_max_total,
        min_warm=pools.gpu_pool_min_warm,
        idle_timeout=_span(pools.gpu_pool_idle_timeout_s),
    )


def fleet_policy(settings: Settings) -> FleetPolicy:
    scaling, health, breaker = settings.scaling, settings.health, settings.breaker
    providers, runpod = settings.providers, settings.runpod
    rented = providers.provider == RUNPOD
    volumes = runpod.runpod_storage_volumes or runpod.runpod_storage_name
    return FleetPolicy(
        min_workers=scaling.min_active_gpus,
        max_workers=scaling.max_active_gpus,
        jobs_per_worker=scaling.tasks_per_gpu_threshold,
        scaling=scaling.scaling_policy,
        shadow=scaling.shadow_scaling_policy,
        promotion=Promotion(health.promotion_policy),
        require_gpu=providers.provider != "local" if health.require_gpu is None else health.require_gpu,
        idle_workers=scaling.machines_to_keep_idle,
        grow_by=scaling.scale_up_multiplier,
        shrink_by=scaling.scale_down_multiplier,
        spawning_grace=_span(scaling.spawning_grace_period_sec),
        min_scaling_interval=_span(scaling.min_scaling_interval_sec),
        target_wait=_span(scaling.target_wait_sec),
        look_every=_span(health.orchestrator_poll_sec),
        idle_timeout=_span(health.gpu_idle_timeout_sec),
        overcapacity_idle_timeout=_span(health.gpu_overcapacity_idle_timeout_sec),
        scale_down_grace=_span(scaling.scale_down_grace_period_sec),
        promoting_beat=_span(health.heartbeat_promotion_threshold_sec),
        heartbeat_timeout=_span(health.heartbeat_timeout_sec),
        stuck_timeout=_span(health.task_stuck_timeout_sec),
        spawning_timeout=_span(health.spawning_timeout_sec),
        boot_timeout=_span(providers.boot_timeout_sec),
        # Only a pod that is given commands of its own has a script to wait for.
        script_timeout=_span(health.script_running_timeout_sec) if rented and runpod.runpod_activation else None,
        preparing_timeout=_span(health.active_initializing_max_sec),
        ready_timeout=_span(health.startup_grace_period_sec),
        gpu_timeout=_span(health.gpu_not_detected_timeout_sec),
        not_claiming_timeout=_span(health.ready_not_claiming_timeout_sec),
        vram_stale_after=_span(health.gpu_health_check_timeout_sec),
        failsafe=_span(health.failsafe_stale_threshold_sec),
        shutdown_grace=_span(health.graceful_shutdown_timeout_sec),
        error_grace=_span(health.error_cleanup_grace_period_sec),
        absence_window=_span(providers.absence_window_sec),
        # Network volumes can be grown; the disk of a pod cannot.
        volume_min_free_gb=runpod.storage_min_free_gb if rented and volumes else None,
        volume_max_used=runpod.storage_max_percent_used,
        volume_grow_gb=runpod.storage_expansion_increment_gb,
        orphan_grace=_span(providers.orphan_grace_sec),
        max_failure_rate=breaker.max_worker_failure_rate,
        min_starts_to_judge=breaker.min_workers_for_rate_check,
        failure_window=timedelta(minutes=breaker.failure_window_minutes),
        max_failed_in_a_row=breaker.max_consecutive_task_failures,
        job_failure_window=timedelta(minutes=breaker.task_failure_window_minutes),
        max_creates_per_hour=scaling.max_creates_per_hour,
        max_cost_per_hour=_money(scaling.max_cost_per_hour_usd),
        budget_per_hour=_money(scaling.budget_per_hour_usd),
        budget_per_day=_money(scaling.budget_per_day_usd),
    )


def _span(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def _money(amount: float | Decimal | None) -> Decimal | None:
    return None if amount is None else Decimal(str(amount))


# What a worker makes of its own; the others would only surprise it.
_NOT_PASSED_ON = frozenset({"API_URL", "FAKE_GPUS", "WORKER_ID", "WORKER_START_COMMAND"})

_NEEDED = frozenset({"RESULT_S3_SECRET"})


def local_deployment(settings: Settings) -> str:
    return settings.providers.deployment_id or LOCAL


def local_options(settings: Settings) -> dict[str, object]:
    command = settings.worker.worker_start_command
    # A worker that ends finishes its job, or stops it; only one that does neither is killed.
    grace = settings.health.graceful_shutdown_timeout_sec + settings.jobs.cancel_grace_sec
    return {
        "deployment": local_deployment(settings),
        "name_prefix": settings.runpod.runpod_name_prefix,
        "state_dir": Path(settings.local.local_state_dir).expanduser().absolute(),
        "fake_gpus": settings.local.fake_gpus,
        "kill_after": timedelta(seconds=grace + 30),
        "environment": worker_environment(settings),
        **({"command": tuple(shlex.split(command))} if command else {}),
    }


def within_this_machine(pools: Mapping[PoolId, FleetPolicy], gpus: int) -> Mapping[PoolId, FleetPolicy]:
    """No pool asks for more workers than there are GPUs to give them. Where none was found, nobody knows better than
    the settings. A process that is not listed has ended: nothing needs to be waited for before its GPU is given on."""
    known: dict[PoolId, FleetPolicy] = {}
    for name, given in pools.items():
        pool = replace(given, confirm_window=timedelta(0), exact_listings=True)
        if 0 < gpus < pool.max_workers:
            least = min(pool.min_workers, gpus)
            pool = replace(pool, min_workers=least, max_workers=gpus, machine_is_full=True)
        known[name] = pool
    return known


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


def runpod_options(settings: Settings) -> dict[str, object]:
    """What the provider is opened with, for every pool; a missing variable is named, never its value."""
    pools = {name: _options(pool) for name, pool in settings.by_pool.items()}
    return {**_options(settings), "pools": pools}


def on_this_machine(settings: Settings) -> bool:
    """Whether workers run beside us, and so reach what listens on loopback: as processes, or as pods of a fake Runpod."""
    provider = settings.providers.provider
    return provider == LOCAL or (provider == RUNPOD and only_from_here(settings.runpod.runpod_api_url or ""))


def address_fault(settings: Settings) -> str | None:
    """Why rented machines could not call the API, and would cost money for nothing; None where they can."""
    provider, url = settings.providers.provider, settings.api.api_url
    if on_this_machine(settings):
        return None
    cure = "set API_URL to the address at which they reach this API, such as https://herdsman.example.com"
    if url is None:
        return f"API_URL is not set, so machines of {provider} would not know whom to call: {cure}"
    if only_from_here(url):
        return f"API_URL is {url}, where machines of {provider} would call themselves: {cure}"
    return None


def _options(settings: Settings) -> dict[str, object]:
    runpod, providers = settings.runpod, settings.providers
    for name, value in (("RUNPOD_API_KEY", runpod.runpod_api_key), ("DEPLOYMENT_ID", providers.deployment_id)):
        if value is None:
            raise InvalidSettings(f"{name} is not set: the Runpod provider cannot work without it")
    command = settings.worker.worker_start_command or ("herdsman", "worker")
    volumes = _list(runpod.runpod_storage_volumes, runpod.runpod_storage_name)
    least_gb = runpod.runpod_min_memory_gb
    return {
        "api_key": runpod.runpod_api_key,
        "deployment": providers.deployment_id,
        "api_url": runpod.runpod_api_url,
        "timeout": timedelta(seconds=providers.provider_timeout_sec),
        "name_prefix": runpod.runpod_name_prefix,
        "gpu_types": _list(runpod.runpod_gpu_types, runpod.runpod_gpu_type),
        "image": runpod.runpod_worker_image,
        "template_id": runpod.runpod_template_id,
        "cloud": runpod.runpod_cloud,
        "data_centers": runpod.runpod_data_centers,
        "volumes": volumes,
        "mount_path": runpod.runpod_volume_mount_path,
        "container_disk_gb": runpod.runpod_container_disk_gb,
        "local_volume_gb": None if volumes else runpod.runpod_disk_size_gb,
        "ports": runpod.runpod_ports,
        "environment": runpod.runpod_env_vars,
        "min_vcpus": runpod.runpod_min_vcpu_count,
        "memory_tiers_gb": tuple(size for size in runpod.runpod_ram_tiers if size >= least_gb),
        "activation": tuple((runpod.runpod_activation or "").splitlines()),
        "start_command": command if settings.health.auto_start_worker_process else None,
    }


def _list(several: tuple[str, ...], one: str | None) -> tuple[str, ...]:
    return several or ((one,) if one else ())


def result_options(settings: Settings) -> ResultOptions:
    """The same for every program of one machine, as long as they have the same settings."""
    chosen = settings.results
    if (chosen.result_s3_key_id is None) != (chosen.result_s3_secret is None):
        raise InvalidSettings(
            "RESULT_S3_KEY_ID and RESULT_S3_SECRET belong together: set both, or none to use the machine's own role"
        )
    place = chosen.result_store
    if place is None or "://" not in place:
        path = Path(place) if place is not None else Path(settings.local.local_state_dir) / "results"
        place = str(path.expanduser().absolute())
    return ResultOptions(
        place=place,
        max_file_mb=chosen.result_max_file_mb,
        max_job_mb=chosen.result_max_job_mb,
        allow_hosts=chosen.result_allow_hosts,
        s3_endpoint=chosen.result_s3_endpoint,
        s3_region=chosen.result_s3_region,
        s3_key_id=chosen.result_s3_key_id,
        s3_secret=None if chosen.result_s3_secret is None else chosen.result_s3_secret.get_secret_value(),
    )


def services_of(settings: Settings) -> dict[str, dict[str, Any]]:
    """By type of jobs: the name of a connector under `connector`, and its options beside it."""
    chosen, tables = settings.connectors, dict[str, Any]()
    if chosen.worker_connectors_file is not None:
        path = Path(chosen.worker_connectors_file).expanduser()
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidSettings(f"WORKER_CONNECTORS_FILE {path} cannot be read: {error}") from error
        for name, table in tables.items():
            options = cast("dict[str, object]", table) if isinstance(table, dict) else {}
            if not isinstance(options.get("connector"), str):
                raise InvalidSettings(
                    f"{path}: {name!r} names no connector: write a table [{name}] with connector = "
                    '"comfyui", "http" or another one that is installed'
                )
    if chosen.comfyui_url is not None and COMFYUI not in tables:
        tables[COMFYUI] = {"connector": COMFYUI, "url": chosen.comfyui_url}
    return tables
