"""GPUs as people see them, and taken out of quarantine by them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import func, select, update

from herdsman.core.body import clean
from herdsman.core.errors import NotFound
from herdsman.core.leasing import Gpu
from herdsman.core.states import LeaseState
from herdsman.db.connection import Tx, records
from herdsman.db.paging import check_limit
from herdsman.db.schema import gpus, leases
from herdsman.store.standings import columns, lock, to_gpu


def clear(tx: Tx, uuid: str) -> Gpu:
    """Whatever is in use on it now is outsiders', and is not waited for."""
    found = lock(tx, [uuid], "operator")
    if not found:
        raise NotFound(f"there is no GPU {uuid!r}")
    gpu, leased = found[0].gpu, sum(each.memory_mb for each in found[0].live)
    outside = max(0, gpu.used_mb - leased)
    tx.execute(
        update(gpus)
        .where(gpus.c.uuid == uuid)
        .values(quarantined_at=None, quarantine_reason=None, outside_mb=outside, proven_at=tx.now())
    )
    return replace(gpu, quarantined_at=None, quarantine_reason=None, outside_mb=outside, proven_at=tx.now())


@dataclass(frozen=True, slots=True)
class GpuPage:
    gpus: tuple[tuple[Gpu, int], ...]
    """Each with the memory that is leased on it."""
    next: str | None


def page(tx: Tx, *, after: str | None = None, limit: int = 100) -> GpuPage:
    check_limit(limit)
    query = columns().order_by(gpus.c.uuid).limit(limit + 1)
    if after is not None:
        query = query.where(gpus.c.uuid > clean(after, 64))
    found = [to_gpu(tuple(row)) for row in tx.execute(query)]
    leased = _leased(tx, [gpu.uuid for gpu in found])
    shown = tuple((gpu, leased.get(gpu.uuid, 0)) for gpu in found[:limit])
    return GpuPage(shown, found[limit - 1].uuid if len(found) > limit else None)


def _leased(tx: Tx, uuids: Sequence[str]) -> Mapping[str, int]:
    if not uuids:
        return {}
    live = (leases.c.worker_id.is_not(None)) | (leases.c.expires_at > tx.now())
    query = (
        select(leases.c.gpu_uuid, func.sum(leases.c.memory_mb).label("leased"))
        .where(leases.c.gpu_uuid.in_(uuids), leases.c.status == LeaseState.ACTIVE.value, live)
        .group_by(leases.c.gpu_uuid)
    )
    return {row["gpu_uuid"]: int(row["leased"]) for row in records(tx, query)}
