"""Finds providers by name, and names their machines. Ours are found as anyone's are: by entry point.

A plugin names a function in its own package metadata, and is found once it is installed:

    [project.entry-points."herdsman.providers"]
    mycloud = "mycloud.herdsman:open_provider"

Whose machine is it? Its name alone says so, and no two deployments can be taken for one another.

A name is `<prefix>--<deployment>--<own part>`. Prefix and deployment are labels: small letters, digits, and
single hyphens between them. So the first `--` ends the prefix and the second one the deployment, whatever the
own part holds, and the deployment `a` never matches what belongs to `a-b`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from herdsman import plugins
from herdsman.errors import InvalidRequest, InvalidSettings
from herdsman.ports import Clock, Provider

GROUP = "herdsman.providers"
SEPARATOR = "--"
LONGEST_LABEL = 40
LONGEST_NAME = 190
_LABEL = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)
_OWN_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


class OpenProvider(Protocol):
    """What an entry point names. It connects to nothing yet; wrong options raise `InvalidSettings`."""

    def __call__(self, options: Mapping[str, object], clock: Clock) -> Provider: ...


def installed() -> tuple[str, ...]:
    return plugins.names(GROUP)


def find(name: str) -> OpenProvider:
    return plugins.load(GROUP, "provider", name, install=f"herdsman[{name}]")


@dataclass(frozen=True, slots=True)
class Naming:
    """Makes the names of one deployment's machines, and knows them again."""

    prefix: str
    deployment: str

    def __post_init__(self) -> None:
        _check_label("the prefix of names", self.prefix)
        _check_label("the deployment id", self.deployment)

    def name(self, own_part: str) -> str:
        """The name of the machine that `own_part` stands for; the same part gives the same name."""
        name = self._start + own_part
        if not _OWN_PART.fullmatch(own_part) or len(name) > LONGEST_NAME:
            raise InvalidRequest(
                f"{own_part!r} cannot be part of a name: it must begin with a letter or digit, hold only"
                f" letters, digits and . _ - and leave the name within {LONGEST_NAME} characters"
            )
        return name

    def owns(self, name: str) -> bool:
        return name.startswith(self._start) and name != self._start

    @property
    def _start(self) -> str:
        return f"{self.prefix}{SEPARATOR}{self.deployment}{SEPARATOR}"


def _check_label(what: str, label: str) -> None:
    if not _LABEL.fullmatch(label) or len(label) > LONGEST_LABEL:
        raise InvalidSettings(
            f"{what} is {label!r}: it must be small letters and digits with single hyphens between them,"
            f" at most {LONGEST_LABEL} characters"
        )
