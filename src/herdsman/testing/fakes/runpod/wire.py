"""Runpod's API in its own words: what it offers, what a create request may hold, how stock and bills are shown.

The ids are Runpod's own, the prices near them. What Runpod refuses, the fake refuses with the same status.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

CUDA = "12.8"
DATA_CENTERS = ("EU-RO-1", "US-KS-2", "CA-MTL-1")
TEMPLATES = frozenset({"a1b2c3d4e5"})


@dataclass(frozen=True, slots=True)
class NetworkVolume:
    id: str
    name: str
    size_gb: int
    data_center: str


GPUS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {each["id"]: each for each in json.loads(Path(__file__).with_name("gpus.json").read_text())}
)
"""By their ids, as Runpod's catalog shows them; prices are US dollars an hour."""
VOLUMES = (NetworkVolume("vol1aaaa", "models", 200, "EU-RO-1"), NetworkVolume("vol2bbbb", "models-us", 200, "US-KS-2"))


class Refused(Exception):
    """A request that is answered with a problem."""

    def __init__(self, status: int, detail: str, *, errors: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors


MAX_VARIABLES = 50
MIN_VOLUME_GB = 10
_PORT = re.compile(r"\d{1,5}/(tcp|http)")


class _Body(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True, frozen=True)


class GpuWanted(_Body):
    id: str
    count: int | None = None
    allowed_cuda_versions: list[str] = []
    min_cuda_version: str | None = None
    min_ram_per_gpu: int | None = None
    min_vcpu_count_per_gpu: int | None = None


class HostVolume(_Body):
    size: int
    path: str


class NetworkMount(_Body):
    volume_id: str
    path: str


class Mounts(_Body):
    persistent: HostVolume | None = None
    network: Annotated[list[NetworkMount], Field(max_length=1)] | None = None


class CreateBody(_Body):
    """What a create request may hold, as the specification has it."""

    name: Annotated[str, Field(min_length=1)]
    image: str = ""
    template_id: str | None = None
    args: str = ""
    cmd: list[str] = []
    entrypoint: list[str] = []
    cloud: Literal["SECURE", "COMMUNITY"] = "SECURE"
    disk: int | None = None
    env: dict[str, str] = {}
    ports: list[str] = []
    registry: str | None = None
    gpu: GpuWanted | None = None
    cpu: dict[str, object] | None = None
    mounts: Mounts = Mounts()
    data_center_ids: list[str] = []
    global_networking: bool = False
    start_jupyter: bool = False
    start_ssh: bool = False

    @model_validator(mode="after")
    def _says_what_to_run(self) -> Self:
        if not self.image and self.template_id is None:
            raise ValueError("missing property 'image'")
        return self

    @property
    def network_mount(self) -> NetworkMount | None:
        return next(iter(self.mounts.network or ()), None)


def check_create(body: object, volumes: Mapping[str, NetworkVolume]) -> CreateBody:
    """The body, once nothing is wrong with it. Runpod answers broken rules, and missing stock, with the same status."""
    try:
        wanted = CreateBody.model_validate(body)
    except ValidationError as error:
        wrong = (f"{'.'.join(['$', *map(str, each['loc'])])}: {each['msg']}" for each in error.errors())
        raise Refused(422, "Request validation failed.", errors=tuple(wrong)) from error
    gpu, host, mount = wanted.gpu, wanted.mounts.persistent, wanted.network_mount
    volume = None if mount is None else volumes.get(mount.volume_id)
    places = wanted.data_center_ids
    if wanted.template_id is not None and wanted.template_id not in TEMPLATES:
        raise Refused(404, "template not found")
    if mount is not None and volume is None:
        raise Refused(404, "network volume not found")
    for holds, detail in (
        ((gpu is None) != (wanted.cpu is None), "exactly one of gpu or cpu must be set"),
        (host is None or mount is None, "mounts are mutually exclusive"),
        (
            gpu is None or not (gpu.allowed_cuda_versions and gpu.min_cuda_version),
            "allowedCudaVersions and minCudaVersion are mutually exclusive",
        ),
        (len(wanted.env) <= MAX_VARIABLES, f"at most {MAX_VARIABLES} environment variables"),
        (all(map(_PORT.fullmatch, wanted.ports)), "ports are formatted as port/protocol"),
        (host is None or host.size >= MIN_VOLUME_GB, f"a volume has at least {MIN_VOLUME_GB} GB"),
        # What the real one says when these are left out has nothing to do with it.
        (wanted.disk is not None, "There are no longer any instances available with enough disk space."),
        (gpu is None or gpu.count, "This machine does not have the resources to deploy your pod."),
        (gpu is None or gpu.id in GPUS, f"unknown GPU type {gpu and gpu.id}"),
        (all(place in DATA_CENTERS for place in places), "unknown data center"),
        (mount is None or wanted.cloud == "SECURE", "network volumes need the SECURE cloud"),
        (volume is None or not places or volume.data_center in places, "the network volume is in another data center"),
    ):
        if not holds:
            raise Refused(400, detail)
    return wanted


def price_of(gpu_id: str) -> Decimal:
    return Decimal(str(GPUS[gpu_id]["price"]["secure"]))


def gpu_view(gpu: Mapping[str, Any], *, availability: str | None) -> dict[str, object]:
    """`availability` is None where nobody asked for it."""
    if availability is None:
        return dict(gpu)
    return {
        **gpu,
        "availability": availability,
        "dataCenters": [{"id": place, "name": place, "availability": availability} for place in DATA_CENTERS],
        "cudaVersions": [{"version": CUDA, "available": availability != "NONE"}],
    }


def volume_view(volume: NetworkVolume) -> dict[str, object]:
    return {
        "id": volume.id,
        "name": volume.name,
        "size": volume.size_gb,
        "dataCenter": volume.data_center,
        "type": "STANDARD",
    }


def amounts(cost: Decimal, *, gpu: bool) -> dict[str, float]:
    total = float(cost)
    return {
        "totalAmount": total,
        "gpuAmount": total if gpu else 0.0,
        "cpuAmount": 0.0 if gpu else total,
        "diskAmount": 0.0,
    }
