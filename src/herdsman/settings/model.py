"""All settings together: each by its name, with where its value came from and how people type it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from herdsman.settings import fleet_settings as fleet
from herdsman.settings import server_settings as server
from herdsman.settings.kinds import DefaultText, Group, Kind


class Origin(StrEnum):
    ENVIRONMENT = "environment"
    DOTENV = ".env"
    FILE = "herdsman.toml"
    DEFAULT = "default"


class Settings(BaseModel):
    """Every setting, by group. `load_settings` makes it, and has checked that the values fit together."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    scaling: fleet.ScalingSettings = Field(default_factory=fleet.ScalingSettings)
    breaker: fleet.BreakerSettings = Field(default_factory=fleet.BreakerSettings)
    pools: fleet.PoolSettings = Field(default_factory=fleet.PoolSettings)
    health: fleet.HealthSettings = Field(default_factory=fleet.HealthSettings)
    jobs: server.JobSettings = Field(default_factory=server.JobSettings)
    leader: server.LeaderSettings = Field(default_factory=server.LeaderSettings)
    leases: server.LeaseSettings = Field(default_factory=server.LeaseSettings)
    worker: server.WorkerSettings = Field(default_factory=server.WorkerSettings)
    watchdog: server.WatchdogSettings = Field(default_factory=server.WatchdogSettings)
    connectors: server.ConnectorSettings = Field(default_factory=server.ConnectorSettings)
    database: server.DatabaseSettings = Field(default_factory=server.DatabaseSettings)
    streams: server.StreamSettings = Field(default_factory=server.StreamSettings)
    results: server.ResultSettings = Field(default_factory=server.ResultSettings)
    providers: fleet.ProviderSettings = Field(default_factory=fleet.ProviderSettings)
    local: fleet.LocalSettings = Field(default_factory=fleet.LocalSettings)
    runpod: fleet.RunpodSettings = Field(default_factory=fleet.RunpodSettings)
    api: server.ApiSettings = Field(default_factory=server.ApiSettings)
    logs: server.LogSettings = Field(default_factory=server.LogSettings)

    origins: Mapping[str, Origin] = Field(default_factory=lambda: MappingProxyType({}), repr=False)
    """By name, for the settings that somebody set."""

    by_pool: "Mapping[str, Settings]" = Field(default_factory=lambda: MappingProxyType({}), repr=False)
    """The settings of every pool beside `default`, whole: what is not its own is as it is here."""

    def origin(self, name: str) -> Origin:
        return self.origins.get(name, Origin.DEFAULT)


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    """In capitals, as a person types it."""
    group: str
    field: FieldInfo
    kind: Kind

    @property
    def key(self) -> str:
        """The name of the field, and of the key in the file."""
        return self.name.lower()

    @property
    def file_name(self) -> str | None:
        """The variable that names a file with the value in it; only secrets have one."""
        return f"{self.name}_FILE" if self.kind.secret else None

    @property
    def description(self) -> str:
        return self.field.description or ""

    def value(self, settings: Settings) -> object:
        return getattr(getattr(settings, self.group), self.key)

    def default(self, settings: Settings) -> object:
        """What the value would be if it were not set; some defaults follow another setting."""
        values = dict(getattr(settings, self.group))
        return self.field.get_default(call_default_factory=True, validated_data=values)

    @property
    def default_text(self) -> str | None:
        return next((mark.text for mark in self.field.metadata if isinstance(mark, DefaultText)), None)


def groups() -> Mapping[str, type[Group]]:
    found = ((name, field.annotation) for name, field in Settings.model_fields.items())
    return {name: kind for name, kind in found if isinstance(kind, type) and issubclass(kind, Group)}


CATALOGUE: Mapping[str, Setting] = MappingProxyType(
    {
        key.upper(): Setting(key.upper(), group, field, kind)
        for group, model in groups().items()
        for key, field in model.model_fields.items()
        for kind in field.metadata
        if isinstance(kind, Kind)
    }
)
PREFIX = "HERDSMAN_"
CONFIG_FILE = "HERDSMAN_CONFIG"

# Kubernetes and container links put these into the environment for every service called herdsman-something.
_SERVICE_LINK = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


ACCEPTED: Mapping[str, Setting] = MappingProxyType(
    {name: each for each in CATALOGUE.values() for name in (each.name, each.file_name) if name is not None}
)
"""Each name without the prefix; a secret has a second one that leads to its file."""


def is_unknown(variable: str) -> bool:
    """Whether the variable is meant for us, by its prefix, and yet names nothing."""
    if not variable.startswith(PREFIX) or variable == CONFIG_FILE or _SERVICE_LINK.fullmatch(variable):
        return False
    # What a pool says that its workers load is no setting.
    from herdsman.jobs.protocol import VARIABLES  # noqa: PLC0415  (most commands do without it, and start sooner)

    return variable not in VARIABLES and variable.removeprefix(PREFIX) not in ACCEPTED


def hint(name: str, known: Iterable[str]) -> str:
    """Ends the sentence on an unknown name, with a question if another name comes close."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else "."


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    group: str
    value: object
    default: object
    origin: Origin
    description: str


def rows(settings: Settings) -> tuple[Row, ...]:
    """One row for each setting, group by group; secrets are hidden, and passwords in URLs replaced."""
    return tuple(
        Row(
            name=setting.name,
            group=setting.group,
            value=setting.kind.shown(setting.value(settings)),
            default=setting.kind.shown(setting.default(settings)),
            origin=settings.origin(setting.name),
            description=setting.description,
        )
        for setting in CATALOGUE.values()
    )
