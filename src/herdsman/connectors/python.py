"""A connector that is a plain class of yours, in a module on the worker's path.

    [caption]
    connector = "python"
    class = "my_package.captions:CaptionService"
    model = "small"

The class is made with the other options and with what a connector may use: `CaptionService({"model": "small"}, around)`.
It has the properties and methods of `herdsman.ports.Connector`, and need not inherit anything.
"""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, cast

from herdsman.connectors.registry import Around
from herdsman.errors import InvalidSettings
from herdsman.ports import Connector

_METHODS = ("submit", "attach", "listen", "check", "fetch", "cancel", "fitness", "close")
_PROPERTIES = ("name", "capabilities")


def open_connector(options: Mapping[str, object], around: Around) -> Connector:
    own = dict(options)
    where = own.pop("class", None)
    if not isinstance(where, str):
        raise InvalidSettings(f'option class is {where!r}; write the connector\'s class as "MODULE:CLASS"')
    module, colon, name = where.partition(":")
    if not (module and colon and name):
        raise InvalidSettings(f'option class is {where!r}; write it as "MODULE:CLASS"')
    try:
        found: Any = resolve_name(where)
    except ImportError as error:
        raise InvalidSettings(
            f"option class: the module {module!r} cannot be imported: {error}; it must be on the worker's path"
        ) from error
    except AttributeError:
        found = None
    if not callable(found):
        raise InvalidSettings(f"option class: the module {module!r} has no class {name!r}")
    made = found(own, around)
    missing = [each for each in _METHODS if not callable(getattr(made, each, None))]
    missing += [each for each in _PROPERTIES if not hasattr(made, each)]
    if missing:
        raise InvalidSettings(
            f"option class: {where} lacks {', '.join(missing)}; herdsman.ports.Connector says what each does"
        )
    return cast("Connector", made)
