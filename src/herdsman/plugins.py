"""Plugins, found by the entry points of installed packages. Ours are found as anyone's are."""

from importlib.metadata import entry_points
from typing import Any

from herdsman.errors import InvalidSettings


def names(group: str) -> tuple[str, ...]:
    return tuple(sorted({plugin.name for plugin in entry_points(group=group)}))


def origins(group: str, name: str) -> str:
    """What packages say that it is, as a person reads it."""
    return " and ".join(sorted(plugin.value for plugin in entry_points(group=group, name=name)))


def load(group: str, what: str, name: str, *, install: str) -> Any:
    """What the entry point names; `InvalidSettings` says of the `what` of this name why it cannot be had."""
    found = list(entry_points(group=group, name=name))
    if not found:
        known = ", ".join(names(group)) or "none"
        raise InvalidSettings(f"there is no {what} {name!r}; installed are: {known}")
    if len(found) > 1:
        raise InvalidSettings(f"two installed packages call their {what} {name!r}: {origins(group, name)}")
    try:
        return found[0].load()
    except ImportError as error:
        raise InvalidSettings(f"the {what} {name!r} lacks a package: {error}; install {install}") from error
    except AttributeError as error:
        raise InvalidSettings(f"the {what} {name!r} is not there: {error}; repair its package") from error
