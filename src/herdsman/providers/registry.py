"""Finds providers by name. Ours are found as anyone's are: by entry point.

A plugin names a function in its own package metadata, and is found once it is installed:

    [project.entry-points."herdsman.providers"]
    mycloud = "mycloud.herdsman:open_provider"
"""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from herdsman.core.errors import InvalidSettings
from herdsman.ports import Clock, Provider

GROUP = "herdsman.providers"


class OpenProvider(Protocol):
    """What an entry point names. It connects to nothing yet; wrong options raise `InvalidSettings`."""

    def __call__(self, options: Mapping[str, object], clock: Clock) -> Provider: ...


def installed() -> tuple[str, ...]:
    return tuple(sorted({plugin.name for plugin in entry_points(group=GROUP)}))


def find(name: str) -> OpenProvider:
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        known = ", ".join(installed()) or "none"
        raise InvalidSettings(f"there is no provider {name!r}; installed are: {known}")
    if len(found) > 1:
        raise InvalidSettings(f"two installed packages call their provider {name!r}: {_origins(found)}")
    return _load(found[0])


def _origins(found: list[EntryPoint]) -> str:
    return " and ".join(sorted(plugin.value for plugin in found))


def _load(plugin: EntryPoint) -> OpenProvider:
    try:
        return plugin.load()
    except ImportError as error:
        raise InvalidSettings(
            f"the provider {plugin.name!r} lacks a package: {error}; install herdsman[{plugin.name}]"
        ) from error
