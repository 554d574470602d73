"""Workers as processes on this machine."""

from collections.abc import Mapping
from typing import Any

from herdsman.errors import InvalidSettings
from herdsman.ports import Clock, Provider


def open_provider(options: Mapping[str, Any], clock: Clock) -> Provider:
    """The entry point: `options` holds the fields of `LocalOptions`."""
    # Every command imports `processes` beside it, and few need the provider.
    from herdsman.providers.local.provider import LocalOptions, LocalProvider  # noqa: PLC0415

    try:
        chosen = LocalOptions(**options)
    except TypeError as error:
        raise InvalidSettings(f"the options of the local provider do not fit: {error}") from error
    return LocalProvider(chosen, clock)
