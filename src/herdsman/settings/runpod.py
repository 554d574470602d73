"""The settings as options of the Runpod provider."""

from datetime import timedelta

from herdsman.core.errors import InvalidSettings
from herdsman.settings.local import LOCAL
from herdsman.settings.model import Settings
from herdsman.settings.urls import only_from_here

RUNPOD = "runpod"


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
    for name, value in (
        ("RUNPOD_API_KEY", runpod.runpod_api_key),
        ("DEPLOYMENT_ID", providers.deployment_id),
    ):
        if value is None:
            raise InvalidSettings(f"{name} is not set: the Runpod provider cannot work without it")
    volumes = _list(runpod.runpod_storage_volumes, runpod.runpod_storage_name)
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
        "memory_tiers_gb": tuple(
            size for size in runpod.runpod_ram_tiers if size >= runpod.runpod_min_memory_gb
        ),
        "activation": tuple((runpod.runpod_activation or "").splitlines()),
        "start_command": _start_command(settings),
    }


def _start_command(settings: Settings) -> object:
    if not settings.health.auto_start_worker_process:
        return None
    return settings.worker.worker_start_command or ("herdsman", "worker")


def _list(several: tuple[str, ...], one: str | None) -> tuple[str, ...]:
    return several or ((one,) if one else ())
