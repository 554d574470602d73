"""Machines rented from Runpod, through its REST API v2."""

from collections.abc import Mapping
from typing import Any

from herdsman.ports import Clock
from herdsman.providers.runpod.options import RunpodOptions
from herdsman.providers.runpod.provider import RunpodProvider
from herdsman.providers.runpod.startup import render_startup

__all__ = ["RunpodOptions", "RunpodProvider", "open_provider", "render_startup"]


def open_provider(options: Mapping[str, Any], clock: Clock) -> RunpodProvider:
    """The entry point: `options` holds the fields of `RunpodOptions`."""
    return RunpodProvider(RunpodOptions(**options), clock)
