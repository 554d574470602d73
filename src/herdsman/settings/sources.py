"""What a place says about settings, before anyone judges the values; and the variables among the places."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic_settings import BaseSettings, DotEnvSettingsSource

from herdsman.core.errors import InvalidSettings
from herdsman.settings.model import Origin
from herdsman.settings.names import ACCEPTED, PREFIX, is_unknown, unknown_variable


@dataclass(frozen=True, slots=True)
class Found:
    value: object
    origin: Origin
    spelled: str
    """The name as it was typed: with or without the prefix, in capitals or not."""
    where: str
    """Where a person would look for it."""

    @property
    def prefixed(self) -> bool:
        return self.spelled.startswith(PREFIX)


@dataclass(frozen=True, slots=True)
class Source:
    found: Mapping[str, Found]
    """By accepted name, without the prefix."""
    problems: tuple[str, ...] = ()
    pools: Mapping[str, Mapping[str, Found]] = field(default_factory=dict[str, Mapping[str, Found]])
    """What only one pool lives by; only the configuration file knows pools."""


def read_dotenv(path: Path) -> Mapping[str, str | None]:
    if not path.is_file():
        return {}
    try:
        return DotEnvSettingsSource(BaseSettings, env_file=path, case_sensitive=True).env_vars
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"{path} is not valid UTF-8.") from error


def from_variables(variables: Mapping[str, str | None], origin: Origin, where: str) -> Source:
    """A variable that is set to nothing counts as not set, since that is how many tools unset one."""
    given = {name: value for name, value in variables.items() if value}
    problems = tuple(unknown_variable(name, where) for name in sorted(given) if is_unknown(name))
    return Source(dict(_known(given, origin, where)), problems)


def _known(given: Mapping[str, str], origin: Origin, where: str) -> Iterator[tuple[str, Found]]:
    for name in ACCEPTED:
        for spelled in (f"{PREFIX}{name}", name):
            if spelled in given:
                yield name, Found(given[spelled], origin, spelled, where)
                break
