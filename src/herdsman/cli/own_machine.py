"""What `herdsman up` chooses for workers of this machine, where nobody has chosen."""

import socket
from collections.abc import Callable
from types import MappingProxyType

from herdsman.providers.local.provider import count_gpus
from herdsman.settings import Origin, Settings

PRETENDED_GPUS = 2
SILENT_SEC = 30.0
"""As long as a claim lasts: whoever says nothing for that long has lost its job anyway."""

_ABOUT_SILENCE = ("HEARTBEAT_TIMEOUT_SEC", "GPU_IDLE_TIMEOUT_SEC", "HEARTBEAT_INTERVAL_SEC")


def for_this_machine(settings: Settings, gpus: Callable[[], int] = count_gpus) -> Settings:
    """A machine without a GPU pretends to have some, and a worker that died is replaced soon."""
    if settings.providers.provider != "local":
        return settings
    pools = {name: _impatient(pool) for name, pool in settings.by_pool.items()}
    changed = _impatient(settings).model_copy(update={"by_pool": MappingProxyType(pools)})
    if settings.origin("FAKE_GPUS") is not Origin.DEFAULT or gpus() > 0:
        return changed
    local = settings.local.model_copy(update={"fake_gpus": PRETENDED_GPUS})
    return changed.model_copy(update={"local": local})


def on_a_free_port(settings: Settings) -> Settings:
    """Where nobody has chosen a port and the usual one is taken, any that is free will do: the greeting names it."""
    api = settings.api
    if settings.origin("API_PORT") is not Origin.DEFAULT or port_fault(api.api_host, api.api_port) is None:
        return settings
    return settings.model_copy(update={"api": api.model_copy(update={"api_port": 0})})


def port_fault(host: str, port: int) -> str | None:
    """Why nobody can listen there now; found out by listening."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror
    return None


def _impatient(settings: Settings) -> Settings:
    """A silent process of this machine is not one whose word is still on its way through a network."""
    if any(settings.origin(name) is not Origin.DEFAULT for name in _ABOUT_SILENCE):
        return settings
    health = settings.health.model_copy(update={"heartbeat_timeout_sec": SILENT_SEC})
    return settings.model_copy(update={"health": health})
