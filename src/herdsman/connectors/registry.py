"""Finds connectors by name. Ours are found as anyone's are: by entry point.

A plugin names a function in its own package metadata, and is found once it is installed:

    [project.entry-points."herdsman.connectors"]
    myservice = "myservice.herdsman:open_connector"
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from herdsman.core.errors import InvalidSettings
from herdsman.ports import Clock, Connector, ResultStore

GROUP = "herdsman.connectors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a connector may use."""

    clock: Clock
    results: ResultStore
    say: Callable[[str], None] = lambda _: None
    """A line for the log of the job at hand."""


class OpenConnector(Protocol):
    """What an entry point names. It connects to nothing yet; wrong options raise `InvalidSettings`."""

    def __call__(self, options: Mapping[str, object], around: Around) -> Connector: ...


def installed() -> tuple[str, ...]:
    return tuple(sorted({plugin.name for plugin in entry_points(group=GROUP)}))


def find(name: str) -> OpenConnector:
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        known = ", ".join(installed()) or "none"
        raise InvalidSettings(f"there is no connector {name!r}; installed are: {known}")
    if len(found) > 1:
        origins = " and ".join(sorted(plugin.value for plugin in found))
        raise InvalidSettings(f"two installed packages call their connector {name!r}: {origins}")
    return _load(found[0])


def _load(plugin: EntryPoint) -> OpenConnector:
    try:
        return plugin.load()
    except ImportError as error:
        raise InvalidSettings(
            f"the connector {plugin.name!r} lacks a package: {error}; install herdsman[worker]"
        ) from error
    except AttributeError as error:
        raise InvalidSettings(
            f"the connector {plugin.name!r} is not there: {error}; mend its package"
        ) from error
