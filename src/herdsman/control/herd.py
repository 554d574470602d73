"""Every worker that lives, with what it holds and what its GPUs say."""

from collections.abc import Mapping, Sequence
from typing import Any

from herdsman.control.services import Services
from herdsman.store import herd
from herdsman.wire.fleet import GpuBarOut, HeldOut, HerdOut, HerdWorkerOut


def living_herd(services: Services) -> HerdOut:
    found = services.database.read(herd.living)
    shown = tuple(_worker(row, found.held.get(row["id"], ())) for row in found.workers)
    return HerdOut(workers=shown, more=found.more)


def _worker(row: Mapping[str, Any], held: Sequence[Mapping[str, Any]]) -> HerdWorkerOut:
    return HerdWorkerOut(
        worker_id=row["id"],
        pool=row["pool"],
        status=row["status"],
        reason=row["reason"],
        since=row["entered_state_at"],
        created_at=row["created_at"],
        last_heartbeat=row["last_heartbeat"],
        instance_type=row["instance_type"],
        node_id=row["node_id"],
        cost_per_hour=row["cost_per_hour"],
        error=row["error_reason"],
        jobs=tuple(_job(each) for each in held),
        gpus=_gpus(row["metadata"]),
    )


def _job(row: Mapping[str, Any]) -> HeldOut:
    return HeldOut(
        job_id=row["job_id"],
        type=row["type"],
        status=row["status"],
        progress=row["progress"],
        progress_note=row["progress_note"],
        since=row["claimed_at"],
    )


def _gpus(metadata: Mapping[str, Any]) -> tuple[GpuBarOut, ...]:
    """As its beats tell them. A worker that was added by hand may have any metadata: what is no GPU is left out."""
    told = metadata.get("gpus")
    bars = [_gpu(each) for each in told if isinstance(each, dict)] if isinstance(told, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return tuple(bar for bar in bars if bar is not None)


def _gpu(device: Mapping[str, Any]) -> GpuBarOut | None:
    numbers = [device.get(name) for name in ("index", "used_mb", "total_mb")]
    if not all(isinstance(each, int) for each in numbers) or not isinstance(device.get("uuid"), str):
        return None
    busy = device.get("utilisation")
    return GpuBarOut(
        uuid=device["uuid"],
        index=device["index"],
        name=str(device.get("name") or "") or None,
        used_mb=device["used_mb"],
        total_mb=device["total_mb"],
        busy_pct=float(busy) if isinstance(busy, int | float) else None,
    )
