"""Runpod's answers, read without trusting them: pods, volumes, prices, and refusals.

Every refusal of Runpod, translated once into who must act.

    400 that speaks of capacity            CapacityUnavailable   the next candidate, or the next cycle
    400 "something went wrong"             unclear
    other 400, 401, 402, 409, 410, 422     ProviderRejected      a person
    403 from the API                       NotAllowed            a person; another GPU type may be allowed
    404 from the API                       NotThere              the verb decides: for an end it is success
    429                                    ProviderUnavailable   the next cycle, after the wait it asks for
    408, 5xx, whatever is not the API's    unclear

*Unclear* is `SpawnUnknown` for a create, which may have happened, and `ProviderUnavailable` for the rest.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, cast
from urllib.parse import urlsplit

import httpx
from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from herdsman.errors import CapacityUnavailable, HerdsmanError, InvalidSettings, ProviderRejected, ProviderUnavailable
from herdsman.ports import Clock
from herdsman.providers.registry import Naming
from herdsman.text import one_line

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


LONGEST_SAID = 400
LONGEST_WAIT = timedelta(days=1)
SHORTEST_SECRET = 8

_TITLE = re.compile(r"<title[^>]*>([^<]{1,200})", re.IGNORECASE)
_EXHAUSTED = re.compile(r";\s*r=0\s*;\s*t=(\d{1,9})")
NO_CAPACITY = (
    "no longer any instances available",
    "does not have the resources",
    "try a different machine",
    "not enough free gpus on the host machine",
    "enough disk space",
)
PASSING = "something went wrong"
TERMINATED = "TERMINATED"
SSH_PRIVATE_PORT = 22


class _Read(BaseModel):
    """A part of an answer. A field that it must have is unreadable when it is missing or odd; any other is left out."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", validate_by_name=True)


Read = TypeVar("Read", bound=_Read)


class Problem(_Read):
    """What the API itself says is wrong."""

    detail: str
    errors: object = None


@dataclass(frozen=True, slots=True)
class Answer:
    asked: str
    """The call, as a person would name it: its method and path."""
    status: int
    headers: httpx.Headers
    body: bytes

    def read(self, kind: type[Read], unclear: type[ProviderUnavailable] = ProviderUnavailable) -> Read:
        try:
            return kind.model_validate_json(self.body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            wrong = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first["loc"] else self.kind
            raise unclear(
                f"runpod's answer to {self.asked} makes no sense: {one_line(wrong, LONGEST_SAID)} (request {self.request_id})"
            ) from None

    @property
    def kind(self) -> str:
        return one_line(self.headers.get("content-type", "a body of no known kind"), 80)

    @property
    def request_id(self) -> str:
        return one_line(self.headers.get("x-request-id", "unknown"), 80)

    def problem(self) -> str | None:
        """None when something in between has answered instead of the API."""
        try:
            said = Problem.model_validate_json(self.body)
        except ValidationError:
            return None
        more = cast("list[object]", said.errors) if isinstance(said.errors, list) else []
        return "; ".join([said.detail, *map(str, more)])

    def sentence(self, secrets: Sequence[str]) -> str:
        """One line for a person, with nothing in it that must stay secret."""
        said = self.problem()
        if not said:
            title = _TITLE.search(self.body[:4096].decode(errors="replace"))
            said = f"{self.kind} and not an answer of the API" + (f", titled {title[1]}" if title else "")
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET:
                said = said.replace(secret, "***")
        return (
            f"runpod answered {self.status} to {self.asked}: {one_line(said, LONGEST_SAID)} (request {self.request_id})"
        )

    def wait(self) -> timedelta | None:
        """How long we are asked to wait: for the longest of the windows that are used up."""
        after = self.headers.get("retry-after", "")
        asked = _EXHAUSTED.findall(self.headers.get("ratelimit", ""))
        if after.isascii() and after.isdecimal() and len(after) < 10:
            asked.append(after)
        return min(timedelta(seconds=max(map(int, asked))), LONGEST_WAIT) if asked else None


class NotThere(ProviderRejected):
    """Runpod knows no such thing."""


class NotAllowed(ProviderRejected):
    """The key or the account may not do this."""


def refusal(answer: Answer, *, unclear: type[ProviderUnavailable], secrets: Sequence[str] = ()) -> HerdsmanError:
    said, wait = answer.sentence(secrets), answer.wait()
    if answer.status == 429:
        return ProviderUnavailable(said, retry_after=wait)
    problem = answer.problem()
    if problem is None or answer.status >= 500 or answer.status == 408:
        return unclear(said, retry_after=wait)
    if answer.status == 400:
        if any(phrase in problem.lower() for phrase in NO_CAPACITY):
            return CapacityUnavailable(said)
        # It is how a failure inside Runpod is passed on, and promises nothing about what was done before it.
        return unclear(said) if PASSING in problem.lower() else ProviderRejected(said)
    return {403: NotAllowed, 404: NotThere}.get(answer.status, ProviderRejected)(said)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _cost(value: object) -> Decimal:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6
    return Decimal(str(value)) if known else Decimal(0)


def _instant(value: object) -> datetime | None:
    try:
        instant = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return instant.astimezone(UTC) if instant.tzinfo is not None else None


def _ssh_ready(ports: object) -> bool:
    mapped = cast("list[Any]", ports) if isinstance(ports, list) else []
    known = [cast("dict[str, object]", each) for each in mapped if isinstance(each, dict)]
    return any(each.get("private") == SSH_PRIVATE_PORT and bool(each.get("public")) for each in known)


Text = Annotated[str, Field(min_length=1)]
TextOrNone = Annotated[str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)]
Count = Annotated[int, BeforeValidator(_count)]
Cost = Annotated[Decimal, BeforeValidator(_cost)]


class Pod(_Read):
    id: Text
    name: Text
    status: Text
    gpu_type: TextOrNone = Field(default=None, validation_alias=AliasPath("gpu", "id"))
    gpu_count: Count = Field(default=0, validation_alias=AliasPath("gpu", "count"))
    cost_per_hour: Cost = Field(default=Decimal(0), validation_alias="cost")
    created_at: Annotated[datetime | None, BeforeValidator(_instant)] = Field(
        default=None, validation_alias="createdAt"
    )
    ssh_ready: Annotated[bool, BeforeValidator(_ssh_ready)] = Field(
        default=False, validation_alias=AliasPath("runtime", "ports")
    )
    """Whether port 22 can be reached from outside."""
    volume_id: TextOrNone = Field(default=None, validation_alias=AliasPath("mounts", "network", 0, "volumeId"))
    """The network volume that it has."""

    @property
    def gone(self) -> bool:
        return self.status == TERMINATED


class Page(_Read):
    pods: tuple[Pod, ...]
    pagination: dict[str, object] | None = None
    """An older API sends everything at once and says nothing about pages."""


class Volume(_Read):
    id: Text
    name: Text
    data_center: TextOrNone = Field(default=None, validation_alias="dataCenter")
    size_gb: Count = Field(default=0, validation_alias="size")


class Volumes(_Read):
    volumes: tuple[Volume, ...] = Field(validation_alias="networkVolumes")


class GpuType(_Read):
    id: Text
    price: object = None
    """By the name of the cloud in small letters: USD an hour."""
    availability: object = None

    @property
    def in_stock(self) -> bool:
        return self.availability != "NONE"

    def price_in(self, cloud: str) -> Decimal | None:
        """None where it is not told."""
        price = cast("dict[str, object]", self.price).get(cloud.lower()) if isinstance(self.price, dict) else None
        return None if price is None else _cost(price)


class GpuTypes(_Read):
    gpus: tuple[GpuType, ...]


class Bill(_Read):
    """What the pods of the account cost in the time that was asked for."""

    total: Cost = Field(default=Decimal(0), validation_alias=AliasPath("metadata", "totals", "totalAmount"))


# Stock comes and goes within seconds; this only keeps the next few spawns from asking in vain first.
MEMORY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Candidate:
    gpu_type: str
    volume: Volume | None
    memory_gb: int | None

    def __str__(self) -> str:
        memory = [f"{self.memory_gb} GB"] if self.memory_gb is not None else []
        volume = [f"on {self.volume.name}"] if self.volume is not None else []
        return " ".join([self.gpu_type, *memory, *volume])


def candidates(options: RunpodOptions, volumes: Sequence[Volume]) -> list[Candidate]:
    """The wanted GPU before another one, its first volume before the next, more memory before less."""
    return [
        Candidate(gpu_type, volume, memory)
        for gpu_type in dict.fromkeys(options.gpu_types)
        for volume in (volumes or (None,))
        for memory in (options.memory_tiers_gb or (None,))
    ]


class Stock:
    """Remembers what was out of stock. It never holds more than there are candidates."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._missing_until: dict[Candidate, float] = {}

    def ran_out(self, candidate: Candidate) -> None:
        self._missing_until[candidate] = self._clock.monotonic() + MEMORY.total_seconds()

    def in_order(self, ladder: Iterable[Candidate]) -> list[Candidate]:
        """What may be in stock first; for the rest, the order stays as it is."""
        now = self._clock.monotonic()
        return sorted(ladder, key=lambda candidate: self._missing_until.get(candidate, now) > now)


def chosen(wanted: Sequence[str], there: Sequence[Volume]) -> tuple[Volume, ...]:
    """By id before name, so that nobody can take a volume's place by naming another one like it."""
    volumes: list[Volume] = []
    for name in wanted:
        by_id = [volume for volume in there if volume.id == name]
        found = by_id or [volume for volume in there if volume.name == name]
        if not found:
            known = ", ".join(sorted(volume.name for volume in there)) or "none"
            raise ProviderRejected(f"there is no network volume {name!r} in this Runpod account, but: {known}")
        if len(found) > 1:
            ids = ", ".join(volume.id for volume in found)
            raise ProviderRejected(f"several network volumes are called {name!r}; name one by its id: {ids}")
        volumes += found
    return tuple(volumes)


def create_body(
    options: RunpodOptions, candidate: Candidate, *, name: str, environment: Mapping[str, str]
) -> dict[str, object]:
    """`disk` and `gpu.count` are always in it: without them Runpod claims to be out of machines."""
    volume, mounts, places = candidate.volume, dict[str, object](), list(options.data_centers)
    if volume is not None:
        mounts = {"network": [{"volumeId": volume.id, "path": options.mount_path}]}
        # A pod must stand where its volume is; anything else would be refused.
        places = [volume.data_center] if volume.data_center else []
    elif options.local_volume_gb is not None:
        mounts = {"persistent": {"size": options.local_volume_gb, "path": options.mount_path}}
    gpu: dict[str, object] = {
        "id": candidate.gpu_type,
        "count": options.gpu_count,
        "minCudaVersion": options.min_cuda,
        "minRamPerGpu": candidate.memory_gb,
        "minVcpuCountPerGpu": options.min_vcpus,
    }
    body: dict[str, object] = {
        "name": name,
        "image": options.image,
        "templateId": options.template_id,
        "cloud": options.cloud,
        "gpu": {field: value for field, value in gpu.items() if value is not None},
        "disk": options.container_disk_gb,
        "dataCenterIds": places,
        "mounts": mounts,
        "ports": list(options.ports),
        "env": dict(environment),
        **startup_fields(options),
    }
    return {field: value for field, value in body.items() if value not in (None, [], {})}
