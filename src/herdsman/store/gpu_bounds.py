"""What somebody says of GPUs, cut to what the tables hold."""

from collections.abc import Iterable

from herdsman.core.body import clean
from herdsman.core.gpu import GpuDevice
from herdsman.store.workers import MOST_GPU_PROCESSES

LARGEST = 2**31 - 1


def bounded(devices: Iterable[GpuDevice], most: int) -> list[GpuDevice]:
    """What somebody says is bounded: a bad one must not fill the table, nor break it (X9)."""
    found: dict[str, GpuDevice] = {}
    for each in devices:
        uuid = clean(each.uuid, 64).strip()
        if uuid and len(found) < most:
            found.setdefault(uuid, _bounded(each, uuid))
    return list(found.values())


def _bounded(device: GpuDevice, uuid: str) -> GpuDevice:
    total = _number(device.total_mb)
    return GpuDevice(
        index=_number(device.index),
        uuid=uuid,
        name=clean(device.name, 64),
        total_mb=total,
        used_mb=min(_number(device.used_mb), total),
        utilisation=None if device.utilisation is None else min(100, _number(device.utilisation)),
        processes=tuple(
            (_number(pid), mb and _number(mb)) for pid, mb in device.processes[:MOST_GPU_PROCESSES]
        ),
        own_mb=None if device.own_mb is None else _number(device.own_mb),
    )


def _number(given: int) -> int:
    return max(0, min(given, LARGEST))
