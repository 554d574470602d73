"""What a local worker is started with, checked before anything is started."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from pydantic import SecretStr

from herdsman.core.errors import InvalidSettings
from herdsman.providers.names import Naming

WORKER = (sys.executable, "-m", "herdsman", "worker")


def _no_variables() -> Mapping[str, SecretStr]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    state_dir: Path
    """Remembers what was started; two deployments may share it."""
    deployment: str = "local"
    name_prefix: str = "gpu"
    command: tuple[str, ...] = WORKER
    environment: Mapping[str, SecretStr] = field(default_factory=_no_variables)
    """All that a worker gets besides what it is asked to have: nothing is inherited."""
    fake_gpus: int = 0
    """0 counts the real ones."""
    kill_after: timedelta = timedelta(seconds=30)
    """How long after it was asked to end a process is killed."""

    def __post_init__(self) -> None:
        _ = self.naming
        if not self.command:
            raise InvalidSettings("the command that starts a local worker is empty")
        if self.fake_gpus < 0:
            raise InvalidSettings(f"there cannot be {self.fake_gpus} fake GPUs")
        if not Path("/proc/self/stat").exists():
            raise InvalidSettings("local workers need Linux and its /proc")

    @property
    def naming(self) -> Naming:
        return Naming(self.name_prefix, self.deployment)

    @property
    def directory(self) -> Path:
        return self.state_dir / self.deployment
