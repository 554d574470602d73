"""Names as people type them: the prefix, the typo guard and its hints."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from herdsman.core.loading import VARIABLES
from herdsman.settings.catalogue import CATALOGUE, Setting

PREFIX = "HERDSMAN_"
CONFIG_FILE = "HERDSMAN_CONFIG"

# Kubernetes and container links put these into the environment for every service called herdsman-something.
_SERVICE_LINK = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def _accepted() -> Iterator[tuple[str, Setting]]:
    for setting in CATALOGUE.values():
        yield setting.name, setting
        if setting.file_name is not None:
            yield setting.file_name, setting


ACCEPTED: Mapping[str, Setting] = MappingProxyType(dict(_accepted()))
"""Each name without the prefix; a secret has a second one that leads to its file."""


def is_unknown(variable: str) -> bool:
    """Whether the variable is meant for us, by its prefix, and yet names nothing."""
    if not variable.startswith(PREFIX) or variable == CONFIG_FILE or _SERVICE_LINK.fullmatch(variable):
        return False
    if variable in VARIABLES:  # no setting: a pool says what its workers load
        return False
    return variable.removeprefix(PREFIX) not in ACCEPTED


def unknown_variable(variable: str, where: str) -> str:
    known = (CONFIG_FILE, *(f"{PREFIX}{name}" for name in ACCEPTED))
    return f"{variable} in {where} is not a setting{hint(variable, known)}"


def hint(name: str, known: Iterable[str]) -> str:
    """Ends the sentence on an unknown name, with a question if another name comes close."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else "."
