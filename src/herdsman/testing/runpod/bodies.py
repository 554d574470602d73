"""Is this the body of a create request? What Runpod refuses, the fake refuses with the same status."""

import re
from collections.abc import Iterator, Mapping
from typing import cast

from herdsman.testing.runpod.catalog import DATA_CENTERS, GPUS, TEMPLATES, NetworkVolume
from herdsman.testing.runpod.replies import Refused

MOST_VARIABLES = 50
SMALLEST_VOLUME_GB = 10

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
    _rule(len(objects(fields, "env")) <= MOST_VARIABLES, f"at most {MOST_VARIABLES} environment variables")
    _rule(
        all(_PORT.fullmatch(port) for port in texts(fields, "ports")), "ports are formatted as port/protocol"
    )
    persistent = cast("dict[str, int]", mounts.get("persistent") or {"size": SMALLEST_VOLUME_GB})
    _rule(persistent["size"] >= SMALLEST_VOLUME_GB, f"a volume has at least {SMALLEST_VOLUME_GB} GB")
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
