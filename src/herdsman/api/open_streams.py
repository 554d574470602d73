"""The streams of this replica. What speaks to Redis is imported only where there is one."""

from importlib import import_module
from typing import Any

from herdsman.control.dispatcher import Dispatcher
from herdsman.control.services import Services
from herdsman.core.errors import InvalidSettings
from herdsman.redis.bus import ReplicaHooks
from herdsman.settings import Settings
from herdsman.wiring import Control


def open_streams(
    settings: Settings, services: Services, control: Control | None, dispatcher: Dispatcher
) -> Any | None:
    """None without REDIS_URL."""
    if settings.streams.redis_url is None:
        return None
    try:
        opening: Any = import_module("herdsman.redis.client")
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise InvalidSettings(
            "REDIS_URL is set, but the package redis is not installed: pip install 'herdsman[redis]'"
        ) from error
    return opening.open_streams(settings, services, _surroundings(control, dispatcher))


def _surroundings(control: Control | None, dispatcher: Dispatcher) -> ReplicaHooks:
    if control is None:
        return ReplicaHooks(wake=dispatcher.wake, ring=dispatcher.ring)
    leadership = control.leadership
    return ReplicaHooks(
        wake=dispatcher.wake,
        ring=dispatcher.ring,
        leads=lambda: leadership.term is not None,
        tick=control.reconciler.tick,
    )
