"""Runpod's API in its own words: what it offers, what a create request may hold, how stock and bills are shown.

The ids are Runpod's own, the prices near them. What Runpod refuses, the fake refuses with the same status.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import cast

CUDA = "12.8"
DATA_CENTERS = ("EU-RO-1", "US-KS-2", "CA-MTL-1")
TEMPLATES = frozenset({"a1b2c3d4e5"})


@dataclass(frozen=True, slots=True)
class Gpu:
    id: str
    memory_gb: int
    price: Decimal
    """US dollars an hour, in the secure cloud."""

    @property
    def short_name(self) -> str:
        return self.id.removeprefix("NVIDIA ").removeprefix("GeForce ")


@dataclass(frozen=True, slots=True)
class NetworkVolume:
    id: str
    name: str
    size_gb: int
    data_center: str


_GPUS = (
    ("NVIDIA RTX A4000", 16, "0.20"),
    ("NVIDIA RTX A5000", 24, "0.27"),
    ("NVIDIA RTX A6000", 48, "0.49"),
    ("NVIDIA A40", 48, "0.44"),
    ("NVIDIA L4", 24, "0.49"),
    ("NVIDIA L40S", 48, "0.91"),
    ("NVIDIA GeForce RTX 3090", 24, "0.46"),
    ("NVIDIA GeForce RTX 4090", 24, "0.74"),
    ("NVIDIA GeForce RTX 5090", 32, "0.94"),
    ("NVIDIA A100 80GB PCIe", 80, "1.64"),
    ("NVIDIA H100 80GB HBM3", 80, "3.29"),
    ("NVIDIA H200", 141, "3.99"),
    ("NVIDIA B200", 180, "6.79"),
)
GPUS: Mapping[str, Gpu] = MappingProxyType(
    {name: Gpu(name, memory, Decimal(price)) for name, memory, price in _GPUS}
)
VOLUMES = (
    NetworkVolume("vol1aaaa", "models", 200, "EU-RO-1"),
    NetworkVolume("vol2bbbb", "models-us", 200, "US-KS-2"),
)


class Refused(Exception):
    """A request that is answered with a problem."""

    def __init__(self, status: int, detail: str, *, errors: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors


MAX_VARIABLES = 50
MIN_VOLUME_GB = 10

TEXT, NUMBER, SWITCH, OBJECT, LIST = (str,), (int,), (bool,), (dict,), (list,)
FIELDS: Mapping[str, tuple[type, ...]] = {
    "name": TEXT,
    "image": TEXT,
    "templateId": TEXT,
    "args": TEXT,
    "cmd": LIST,
    "entrypoint": LIST,
    "cloud": TEXT,
    "disk": NUMBER,
    "env": OBJECT,
    "ports": LIST,
    "registry": (str, type(None)),
    "gpu": OBJECT,
    "cpu": OBJECT,
    "mounts": OBJECT,
    "dataCenterIds": LIST,
    "globalNetworking": SWITCH,
    "startJupyter": SWITCH,
    "startSsh": SWITCH,
}
GPU_FIELDS: Mapping[str, tuple[type, ...]] = {
    "id": TEXT,
    "count": NUMBER,
    "allowedCudaVersions": LIST,
    "minCudaVersion": TEXT,
    "minRamPerGpu": NUMBER,
    "minVcpuCountPerGpu": NUMBER,
}
_PORT = re.compile(r"\d{1,5}/(tcp|http)")


def check_create(body: object, volumes: Mapping[str, NetworkVolume]) -> dict[str, object]:
    """The body, once nothing is wrong with it."""
    if not isinstance(body, dict):
        raise Refused(422, "Request validation failed.", errors=("$: expected an object",))
    fields = cast("dict[str, object]", body)
    errors = tuple(_schema_errors(fields))
    if errors:
        raise Refused(422, "Request validation failed.", errors=errors)
    _check_rules(fields)
    _check_references(fields, volumes)
    return fields


def objects(fields: Mapping[str, object], key: str) -> dict[str, object]:
    return cast("dict[str, object]", fields.get(key) or {})


def texts(fields: Mapping[str, object], key: str) -> list[str]:
    return cast("list[str]", fields.get(key) or [])


def network_mount(fields: Mapping[str, object]) -> dict[str, str] | None:
    mounts = cast("list[dict[str, str]]", objects(fields, "mounts").get("network") or [])
    return mounts[0] if mounts else None


def _schema_errors(fields: Mapping[str, object]) -> Iterator[str]:
    yield from _shape_errors("$", fields, FIELDS)
    if not fields.get("name"):
        yield "$: missing property 'name'"
    if not fields.get("image") and not fields.get("templateId"):
        yield "$: missing property 'image'"
    if isinstance(fields.get("gpu"), dict):
        yield from _shape_errors("$.gpu", objects(fields, "gpu"), GPU_FIELDS)
        if "id" not in objects(fields, "gpu"):
            yield "$.gpu: missing property 'id'"
    if fields.get("cloud", "SECURE") not in {"SECURE", "COMMUNITY"}:
        yield "$.cloud: value must be one of 'SECURE', 'COMMUNITY'"
    if isinstance(fields.get("env"), dict) and not all(
        isinstance(value, str) for value in objects(fields, "env").values()
    ):
        yield "$.env: expected texts"
    if isinstance(fields.get("mounts"), dict):
        yield from _mount_errors(objects(fields, "mounts"))


def _shape_errors(
    where: str, fields: Mapping[str, object], known: Mapping[str, tuple[type, ...]]
) -> Iterator[str]:
    unknown = [field for field in fields if field not in known]
    if unknown:
        names = ", ".join(f"'{field}'" for field in unknown)
        yield f"{where}: additional properties {names} not allowed"
    for field, value in fields.items():
        kinds = known.get(field, (object,))
        switch_as_number = isinstance(value, bool) and bool not in kinds and object not in kinds
        if not isinstance(value, kinds) or switch_as_number:
            yield f"{where}.{field}: wrong type"


def _mount_errors(mounts: Mapping[str, object]) -> Iterator[str]:
    if set(mounts) - {"persistent", "network"}:
        yield "$.mounts: additional properties not allowed"
    persistent = mounts.get("persistent")
    if persistent is not None and set(cast("dict[str, object]", persistent)) != {"size", "path"}:
        yield "$.mounts.persistent: 'size' and 'path' are required"
    network = cast("list[dict[str, object]]", mounts.get("network") or [])
    if len(network) > 1 or any(set(each) != {"volumeId", "path"} for each in network):
        yield "$.mounts.network: one mount with 'volumeId' and 'path'"


def _check_rules(fields: Mapping[str, object]) -> None:
    """Rules between fields: Runpod answers these, and missing stock, with the same status."""
    gpu, mounts = objects(fields, "gpu"), objects(fields, "mounts")
    _rule(("gpu" in fields) != ("cpu" in fields), "exactly one of gpu or cpu must be set")
    _rule(not ("persistent" in mounts and "network" in mounts), "mounts are mutually exclusive")
    _rule(
        not (gpu.get("allowedCudaVersions") and gpu.get("minCudaVersion")),
        "allowedCudaVersions and minCudaVersion are mutually exclusive",
    )
    _rule(len(objects(fields, "env")) <= MAX_VARIABLES, f"at most {MAX_VARIABLES} environment variables")
    _rule(
        all(_PORT.fullmatch(port) for port in texts(fields, "ports")), "ports are formatted as port/protocol"
    )
    persistent = cast("dict[str, int]", mounts.get("persistent") or {"size": MIN_VOLUME_GB})
    _rule(persistent["size"] >= MIN_VOLUME_GB, f"a volume has at least {MIN_VOLUME_GB} GB")
    # What the real one says when these are left out has nothing to do with it.
    _rule("disk" in fields, "There are no longer any instances available with enough disk space.")
    _rule("cpu" in fields or "count" in gpu, "This machine does not have the resources to deploy your pod.")


def _check_references(fields: Mapping[str, object], volumes: Mapping[str, NetworkVolume]) -> None:
    template, mount = fields.get("templateId"), network_mount(fields)
    if template is not None and template not in TEMPLATES:
        raise Refused(404, "template not found")
    gpu_id = objects(fields, "gpu").get("id")
    _rule(gpu_id is None or gpu_id in GPUS, f"unknown GPU type {gpu_id}")
    places = texts(fields, "dataCenterIds")
    _rule(all(place in DATA_CENTERS for place in places), "unknown data center")
    if mount is None:
        return
    volume = volumes.get(mount["volumeId"])
    if volume is None:
        raise Refused(404, "network volume not found")
    _rule(fields.get("cloud", "SECURE") == "SECURE", "network volumes need the SECURE cloud")
    _rule(not places or volume.data_center in places, "the network volume is in another data center")


def _rule(holds: bool, detail: str) -> None:  # noqa: FBT001  reads aloud as it is called
    if not holds:
        raise Refused(400, detail)


def gpu_view(gpu: Gpu, *, availability: str | None) -> dict[str, object]:
    """`availability` is None where nobody asked for it."""
    price = float(gpu.price)
    stock: dict[str, object] = {}
    if availability is not None:
        places = [{"id": place, "name": place, "availability": availability} for place in DATA_CENTERS]
        stock = {
            "availability": availability,
            "dataCenters": places,
            "cudaVersions": [{"version": CUDA, "available": availability != "NONE"}],
        }
    return {
        "id": gpu.id,
        "name": gpu.short_name,
        "pool": None,
        "manufacturer": "NVIDIA",
        "memory": gpu.memory_gb,
        "secure": True,
        "community": True,
        "price": {"secure": price, "community": price},
        "maxCount": {"secure": 8, "community": 4},
        **stock,
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
