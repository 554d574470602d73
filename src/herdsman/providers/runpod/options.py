"""What Runpod is asked for, checked before anything is asked: the options, and the environment and command of a pod."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from herdsman.errors import HerdsmanError, InvalidSettings, ProviderRejected
from herdsman.providers.registry import Naming

MOST_VARIABLES = 50

_OURS_ALONE = re.compile(r"SERVICE_ROLE|RUNPOD_API_KEY|DATABASE_URL|ADMIN_API_KEY", re.IGNORECASE)
API_URL = "https://api.runpod.io/v2"
SSH_PORT = "22/tcp"
SMALLEST_LOCAL_VOLUME_GB = 10
Cloud = Literal["SECURE", "COMMUNITY"]
# Not a login shell: that would replace the PATH that the image has set.
_SHELL = ("bash", "-c")


def pod_environment(
    asked: Mapping[str, str],
    extras: Mapping[str, SecretStr],
    key: SecretStr,
    refusal: type[HerdsmanError] = ProviderRejected,
) -> dict[str, str]:
    """All variables of one pod. What the worker was asked to have wins over an extra of the same name."""
    together = {name: value.get_secret_value() for name, value in extras.items()} | dict(asked)
    if len(together) > MOST_VARIABLES:
        raise refusal(f"a pod would get {len(together)} variables, Runpod takes {MOST_VARIABLES} at most")
    for name, value in together.items():
        if _OURS_ALONE.search(name):
            raise refusal(f"a pod would get {name}, which belongs to the control plane alone")
        if key.get_secret_value() in value:
            raise refusal(f"a pod would get the key of the Runpod account as {name}")
    return together


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
    environment: Mapping[str, SecretStr] = field(default_factory=lambda: MappingProxyType({}))
    """More variables for every pod."""

    def __post_init__(self) -> None:
        address = urlsplit(self.api_url)
        if address.scheme not in {"http", "https"} or not address.hostname or "@" in address.netloc:
            raise InvalidSettings("the URL of Runpod's API must be https://HOST/PATH without a user")
        key = self.api_key.get_secret_value()
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise InvalidSettings("the key of the Runpod account is empty, or holds blanks or odd characters")
        local = self.local_volume_gb
        for wrong, text in (
            (not self.gpu_types, "Runpod needs at least one GPU type to ask for"),
            (not (self.image or self.template_id), "Runpod needs an image or a template for its pods"),
            (self.gpu_count < 1, f"a pod cannot have {self.gpu_count} GPUs"),
            (self.container_disk_gb < 1, f"a pod cannot have a disk of {self.container_disk_gb} GB"),
            (not self.mount_path.startswith("/"), f"the mount path {self.mount_path!r} must begin with /"),
            (self.volumes and self.cloud != "SECURE", "network volumes exist in the secure cloud only"),
            (
                local is not None and local < SMALLEST_LOCAL_VOLUME_GB,
                f"a volume on the host has at least {SMALLEST_LOCAL_VOLUME_GB} GB",
            ),
        ):
            if wrong:
                raise InvalidSettings(text)
        _ = self.naming
        pod_environment({}, self.environment, self.api_key, InvalidSettings)

    @property
    def naming(self) -> Naming:
        return Naming(self.name_prefix, self.deployment)


def render_startup(options: RunpodOptions) -> str:
    """The script that a pod runs, for a person to read; empty where the image runs its own command."""
    return " &&\n".join(_steps(options))


def startup_fields(options: RunpodOptions) -> dict[str, object]:
    """The start command as the fields of a create request."""
    command = options.start_command
    if command is None:
        return {}
    script = " && ".join(_steps(options))
    if isinstance(command, str):
        return {"args": shlex.join((*_SHELL, script))}
    wrapped = bool(options.activation) or _has_volume(options)
    return {"cmd": [*_SHELL, script] if wrapped else list(command)}


def _steps(options: RunpodOptions) -> tuple[str, ...]:
    command = options.start_command
    if command is None:
        return ()
    enter = (f"cd {shlex.quote(options.mount_path)}",) if _has_volume(options) else ()
    # A shell line may be several commands; a single program takes the shell's place, and so gets its signals.
    start = command if isinstance(command, str) else f"exec {shlex.join(command)}"
    return (*enter, *options.activation, start)


def _has_volume(options: RunpodOptions) -> bool:
    return bool(options.volumes) or options.local_volume_gb is not None
