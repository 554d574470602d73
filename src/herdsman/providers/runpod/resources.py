"""Pods and volumes as Runpod describes them, reduced to what we use; unknown fields are ignored."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import cast

from herdsman.providers.runpod.answers import Unreadable, as_object

TERMINATED = "TERMINATED"
SSH_PRIVATE_PORT = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    id: str
    name: str
    status: str
    gpu_type: str | None
    gpu_count: int
    cost_per_hour: Decimal
    created_at: datetime | None
    ssh_ready: bool
    """Whether port 22 can be reached from outside."""
    volume_id: str | None = None
    """The network volume that it has."""

    @property
    def gone(self) -> bool:
        return self.status == TERMINATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    id: str
    name: str
    data_center: str | None
    size_gb: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    id: str
    price: Decimal | None
    """USD an hour in the cloud that was asked for; None where it is not told."""
    in_stock: bool


@dataclass(frozen=True, slots=True)
class Page:
    pods: tuple[Pod, ...]
    cursor: str | None
    """Where the next page begins; None on the last one."""


def read_pod(value: object) -> Pod:
    """A pod without an id, a name or a status is unreadable; everything else may be missing or odd."""
    fields = _object(value, "a pod")
    gpu = as_object(fields.get("gpu")) or {}
    gpu_type = gpu.get("id")
    return Pod(
        id=_text(fields, "id"),
        name=_text(fields, "name"),
        status=_text(fields, "status"),
        gpu_type=gpu_type if isinstance(gpu_type, str) else None,
        gpu_count=_count(gpu.get("count")),
        cost_per_hour=_cost(fields.get("cost")),
        created_at=_instant(fields.get("createdAt")),
        ssh_ready=_ssh_ready(fields),
        volume_id=_volume_id(fields),
    )


def read_page(value: object, *, limit: int) -> Page:
    fields = _object(value, "a page of pods")
    pods = tuple(read_pod(each) for each in _list(fields, "pods"))
    return Page(pods, _next_cursor(fields, full=len(pods) == limit))


def read_volumes(value: object) -> tuple[Volume, ...]:
    fields = _object(value, "a list of volumes")
    return tuple(_volume(_object(each, "a volume")) for each in _list(fields, "networkVolumes"))


def read_gpu_types(value: object, *, cloud: str) -> tuple[GpuType, ...]:
    fields = _object(value, "a catalog of GPUs")
    return tuple(_gpu_type(_object(each, "a GPU"), cloud.lower()) for each in _list(fields, "gpus"))


def read_spent(value: object) -> Decimal:
    """What the pods of the account cost in the time that was asked for."""
    metadata = as_object(_object(value, "a bill").get("metadata")) or {}
    return _cost((as_object(metadata.get("totals")) or {}).get("totalAmount"))


def _gpu_type(fields: Mapping[str, object], cloud: str) -> GpuType:
    price = (as_object(fields.get("price")) or {}).get(cloud)
    return GpuType(
        id=_text(fields, "id"),
        price=None if price is None else _cost(price),
        in_stock=fields.get("availability") != "NONE",
    )


def _volume(fields: Mapping[str, object]) -> Volume:
    place = fields.get("dataCenter")
    return Volume(
        id=_text(fields, "id"),
        name=_text(fields, "name"),
        data_center=place if isinstance(place, str) else None,
        size_gb=_count(fields.get("size")),
    )


def _next_cursor(fields: Mapping[str, object], *, full: bool) -> str | None:
    pagination = as_object(fields.get("pagination"))
    if pagination is None:
        # An older API sends everything at once and says nothing about pages; a page cut short looks like this.
        if full:
            raise Unreadable("the page is full and does not say whether there is another one")
        return None
    if pagination.get("hasNextPage") is False:
        return None
    cursor = pagination.get("nextCursor")
    if not isinstance(cursor, str) or not cursor:
        raise Unreadable("there is another page, but no way to it")
    return cursor


def _ssh_ready(fields: Mapping[str, object]) -> bool:
    runtime = as_object(fields.get("runtime")) or {}
    ports = runtime.get("ports")
    mapped = (
        [as_object(each) or {} for each in cast("list[object]", ports)] if isinstance(ports, list) else []
    )
    return any(each.get("private") == SSH_PRIVATE_PORT and bool(each.get("public")) for each in mapped)


def _volume_id(fields: Mapping[str, object]) -> str | None:
    mounts = as_object(fields.get("mounts")) or {}
    network = mounts.get("network")
    first = as_object(cast("list[object]", network)[0]) if isinstance(network, list) and network else None
    found = (first or {}).get("volumeId")
    return found if isinstance(found, str) and found else None


def _object(value: object, what: str) -> Mapping[str, object]:
    fields = as_object(value)
    if fields is None:
        raise Unreadable(f"{what} is not an object")
    return fields


def _list(fields: Mapping[str, object], key: str) -> list[object]:
    value = fields.get(key)
    if not isinstance(value, list):
        raise Unreadable(f"{key} is not a list")
    return cast("list[object]", value)


def _text(fields: Mapping[str, object], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise Unreadable(f"{key} is not a text")
    return value


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
