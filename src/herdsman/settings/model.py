"""All settings together, and where each came from."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field

from herdsman.settings.control import ApiSettings, LeaderSettings, LeaseSettings, LogSettings
from herdsman.settings.health import HealthSettings
from herdsman.settings.jobs import JobSettings
from herdsman.settings.providers import LocalSettings, ProviderSettings, RunpodSettings
from herdsman.settings.scaling import BreakerSettings, PoolSettings, ScalingSettings
from herdsman.settings.stores import DatabaseSettings, ResultSettings, StreamSettings
from herdsman.settings.worker import ConnectorSettings, WatchdogSettings, WorkerSettings


class Origin(StrEnum):
    ENVIRONMENT = "environment"
    DOTENV = ".env"
    FILE = "herdsman.toml"
    DEFAULT = "default"


def _nowhere() -> Mapping[str, Origin]:
    return MappingProxyType({})


def _no_pools() -> "Mapping[str, Settings]":
    return MappingProxyType({})


class Settings(BaseModel):
    """Every setting, by group. `load_settings` makes it, and has checked that the values fit together."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    scaling: ScalingSettings = Field(default_factory=ScalingSettings)
    breaker: BreakerSettings = Field(default_factory=BreakerSettings)
    pools: PoolSettings = Field(default_factory=PoolSettings)
    health: HealthSettings = Field(default_factory=HealthSettings)
    jobs: JobSettings = Field(default_factory=JobSettings)
    leader: LeaderSettings = Field(default_factory=LeaderSettings)
    leases: LeaseSettings = Field(default_factory=LeaseSettings)
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    watchdog: WatchdogSettings = Field(default_factory=WatchdogSettings)
    connectors: ConnectorSettings = Field(default_factory=ConnectorSettings)
    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    streams: StreamSettings = Field(default_factory=StreamSettings)
    results: ResultSettings = Field(default_factory=ResultSettings)
    providers: ProviderSettings = Field(default_factory=ProviderSettings)
    local: LocalSettings = Field(default_factory=LocalSettings)
    runpod: RunpodSettings = Field(default_factory=RunpodSettings)
    api: ApiSettings = Field(default_factory=ApiSettings)
    logs: LogSettings = Field(default_factory=LogSettings)

    origins: Mapping[str, Origin] = Field(default_factory=_nowhere, repr=False)
    """By name, for the settings that somebody set."""

    by_pool: "Mapping[str, Settings]" = Field(default_factory=_no_pools, repr=False)
    """The settings of every pool beside `default`, whole: what is not its own is as it is here."""

    def origin(self, name: str) -> Origin:
        return self.origins.get(name, Origin.DEFAULT)
