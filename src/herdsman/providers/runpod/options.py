"""What Runpod is asked for, checked before anything is asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from herdsman.core.errors import InvalidSettings
from herdsman.providers.names import Naming
from herdsman.providers.runpod.environment import check_extras

API_URL = "https://api.runpod.io/v2"
SSH_PORT = "22/tcp"
SMALLEST_LOCAL_VOLUME_GB = 10

Cloud = Literal["SECURE", "COMMUNITY"]


def _no_variables() -> Mapping[str, SecretStr]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunpodOptions:
    api_key: SecretStr
    deployment: str
    """Tells our pods from those of another installation in the same account."""
    gpu_types: tuple[str, ...]
    """In the order in which they are asked for."""
    image: str | None = None
    template_id: str | None = None

    api_url: str = API_URL
    timeout: timedelta = timedelta(seconds=30)
    name_prefix: str = "gpu"

    gpu_count: int = 1
    cloud: Cloud = "SECURE"
    data_centers: tuple[str, ...] = ()
    min_cuda: str | None = None
    min_vcpus: int | None = None
    memory_tiers_gb: tuple[int, ...] = ()
    """Memory per GPU to ask for, in this order; empty to take what comes."""

    volumes: tuple[str, ...] = ()
    """Network volumes to try, in this order, each by its id or its name."""
    mount_path: str = "/workspace"
    local_volume_gb: int | None = None
    """A volume on the host's own disk, where there is no network volume."""
    container_disk_gb: int = 200
    ports: tuple[str, ...] = ()
    """A pod with port 22/tcp counts as running only when it can be reached there."""

    start_command: str | tuple[str, ...] | None = None
    """A line for a shell, or a program and its arguments; None leaves it to the image."""
    activation: tuple[str, ...] = ()
    """Shell commands before the start command, in the volume."""
    environment: Mapping[str, SecretStr] = field(default_factory=_no_variables)
    """More variables for every pod."""

    def __post_init__(self) -> None:
        self._check_access()
        self._check_machine()
        _ = self.naming
        check_extras(self.environment, self.api_key)

    @property
    def naming(self) -> Naming:
        return Naming(self.name_prefix, self.deployment)

    def _check_access(self) -> None:
        address = urlsplit(self.api_url)
        if address.scheme not in {"http", "https"} or not address.hostname or "@" in address.netloc:
            raise InvalidSettings("the URL of Runpod's API must be https://HOST/PATH without a user")
        key = self.api_key.get_secret_value()
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise InvalidSettings("the key of the Runpod account is empty, or holds blanks or odd characters")

    def _check_machine(self) -> None:
        _require(bool(self.gpu_types), "Runpod needs at least one GPU type to ask for")
        _require(bool(self.image or self.template_id), "Runpod needs an image or a template for its pods")
        _require(self.gpu_count >= 1, f"a pod cannot have {self.gpu_count} GPUs")
        _require(self.container_disk_gb >= 1, f"a pod cannot have a disk of {self.container_disk_gb} GB")
        _require(self.mount_path.startswith("/"), f"the mount path {self.mount_path!r} must begin with /")
        _require(
            not (self.volumes and self.cloud != "SECURE"), "network volumes exist in the secure cloud only"
        )
        _require(
            self.local_volume_gb is None or self.local_volume_gb >= SMALLEST_LOCAL_VOLUME_GB,
            f"a volume on the host has at least {SMALLEST_LOCAL_VOLUME_GB} GB",
        )


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001  reads aloud as it is called
    if not holds:
        raise InvalidSettings(otherwise)
