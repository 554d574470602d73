"""Machines rented from Runpod, through its REST API v2."""

from collections.abc import Mapping
from typing import Any

from herdsman.errors import InvalidSettings
from herdsman.ports import Clock, Provider
from herdsman.providers.runpod.options import RunpodOptions, render_startup
from herdsman.providers.runpod.provider import RunpodProvider

__all__ = ["RunpodOptions", "RunpodProvider", "open_provider", "render_startup"]


def open_provider(options: Mapping[str, Any], clock: Clock) -> Provider:
    """The entry point: `options` holds the fields of `RunpodOptions`, and under `pools` those of pools that differ."""
    of_all = {name: value for name, value in options.items() if name != "pools"}
    pools: Mapping[str, Mapping[str, Any]] = options.get("pools", {})
    try:
        chosen = RunpodOptions(**of_all)
        others = {name: RunpodOptions(**own) for name, own in pools.items()}
    except TypeError as error:
        raise InvalidSettings(f"the options of Runpod do not fit: {error}") from error
    return RunpodProvider(chosen, clock, pools=others)
