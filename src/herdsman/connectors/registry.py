"""Finds connectors by name, and knows which one runs which jobs. Ours are found as anyone's are: by entry point.

A plugin names a function in its own package metadata, and is found once it is installed:

    [project.entry-points."herdsman.connectors"]
    myservice = "myservice.herdsman:open_connector"
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from herdsman import plugins
from herdsman.errors import InvalidSettings
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


class Options(BaseModel):
    """Options of a connector, checked before its first job."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True, populate_by_name=True
    )


OptionsT = TypeVar("OptionsT", bound=Options)


def read_options(kind: type[OptionsT], options: Mapping[str, object]) -> OptionsT:
    """`InvalidSettings` names what is wrong by its option; no values are shown but numbers, for others may be secret."""
    try:
        return kind.model_validate(dict(options))
    except ValidationError as error:
        problems: list[str] = []
        for each in error.errors(include_url=False):
            place, given = ".".join(map(str, each["loc"])), each["input"]
            said = each["msg"].removeprefix("Value error, ")
            if each["type"] == "extra_forbidden":
                said = f"there is no such option; there are: {', '.join(kind.model_fields)}"
            shown = f", and not {given!r}" if isinstance(given, int | float) and len(each["loc"]) == 1 else ""
            problems.append(f"option {place}: {said}{shown}" if place else said)
        raise InvalidSettings("; ".join(problems)) from None


def installed() -> tuple[str, ...]:
    return plugins.names(GROUP)


def find(name: str) -> OpenConnector:
    return plugins.load(GROUP, "connector", name, install="herdsman[worker]")


@dataclass(kw_only=True)
class ConnectorManager:
    """Picks by the type of a job; one that was opened is kept."""

    services: Mapping[str, Mapping[str, Any]]
    """For each type of jobs the name of a connector under `connector`, and its options beside it."""
    around: Around
    _open: dict[str, Connector] = field(default_factory=dict[str, Connector])

    def types(self) -> tuple[str, ...]:
        return tuple(self.services)

    def get(self, job_type: str) -> Connector:
        if job_type not in self._open:
            options = dict(self.services.get(job_type, {}))
            name = options.pop("connector", None)
            if not isinstance(name, str):
                known = ", ".join(self.services) or "none"
                raise InvalidSettings(f"no connector runs jobs of type {job_type!r}; known types are: {known}")
            self._open[job_type] = find(name)(options, self.around)
        return self._open[job_type]

    def close(self) -> None:
        for connector in self._open.values():
            connector.close()
        self._open.clear()
