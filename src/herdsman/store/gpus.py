"""The inventory of GPUs: reported by workers with their beats, or by nodes without one."""

import json
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import Insert, bindparam, delete, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from herdsman.core.body import clean
from herdsman.core.gpu import GpuDevice, GpuReport
from herdsman.core.lease_memory import Account, LastEnd, Measurement, account
from herdsman.core.leasing import Gpu, LeasePolicy, Standing
from herdsman.core.model import WorkerId
from herdsman.core.states import SERVING, LeaseState
from herdsman.db.connection import Tx, record, values
from herdsman.db.errors import Contended
from herdsman.db.schema import gpus, leases, worker_gpus, workers
from herdsman.db.statements import Hot
from herdsman.store.gpu_bounds import bounded
from herdsman.store.standings import lock_free
from herdsman.store.workers import MOST_GPUS

log = structlog.get_logger()

MOST_OF_NODE = 64
SAME_MB = 64
"""A change of so little memory is written down with the next full report."""
QUIET_PART = 4
"""A GPU on which nothing happens is written down so many times within the time after which it counts as silent."""

KNOWN = Hot(
    lambda listed: select(
        gpus.c.uuid,
        gpus.c.worker_id,
        gpus.c.node_id,
        gpus.c.total_mb,
        gpus.c.used_mb,
        gpus.c.outside_mb,
        gpus.c.measured_at,
        gpus.c.proven_at,
        gpus.c.quarantined_at,
        select(func.max(leases.c.ended_at))
        .where(leases.c.gpu_uuid == gpus.c.uuid)
        .correlate(gpus)
        .scalar_subquery(),
        select(func.min(leases.c.expires_at))
        .where(
            leases.c.gpu_uuid == gpus.c.uuid,
            leases.c.status == LeaseState.ACTIVE.value,
            leases.c.worker_id.is_(None),
        )
        .correlate(gpus)
        .scalar_subquery(),
    ).where(gpus.c.uuid.in_(listed))
)
MEASURED = Hot(
    update(gpus)
    .where(gpus.c.uuid == bindparam("b_uuid"))
    .values(
        node_id=bindparam("b_node"),
        gpu_index=bindparam("b_index"),
        name=bindparam("b_name"),
        worker_id=bindparam("b_worker"),
        total_mb=bindparam("b_total"),
        used_mb=bindparam("b_used"),
        outside_mb=bindparam("b_outside"),
        utilisation=bindparam("b_utilisation"),
        processes=bindparam("b_processes"),
        measured_at=bindparam("b_measured"),
        proven_at=bindparam("b_proven"),
        quarantined_at=bindparam("b_quarantined"),
        quarantine_reason=bindparam("b_why"),
    )
)
LAST_END = Hot(
    select(leases.c.ended_at, leases.c.agent_name)
    .where(leases.c.gpu_uuid == bindparam("b_uuid"), leases.c.ended_at.is_not(None))
    .order_by(leases.c.ended_at.desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """Who tells of GPUs: a worker, or for its own node somebody who may."""

    node: str
    worker_id: WorkerId | None = None


def note(tx: Tx, worker_id: WorkerId, report: GpuReport, policy: LeasePolicy) -> None:
    """What a worker says with its beat. One whose GPUs are as they were costs one look."""
    node = worker_id if report.node is None else clean(report.node, 128)
    found = bounded(report.devices, MOST_GPUS)
    told = Reporter(node=node or worker_id, worker_id=worker_id)
    if _changed(tx, told, found, policy):
        measure(tx, told, found, report.vram_age, policy)


def measure(
    tx: Tx, told: Reporter, devices: Sequence[GpuDevice], age: timedelta, policy: LeasePolicy
) -> list[str]:
    """Write down what was measured `age` ago; the GPUs whose word was taken.

    A GPU belongs to whoever reported it last, until it falls silent or its worker ends: another worker of the same
    node shares the card but does not speak for it, and one that says it is elsewhere is not listened to (X7).
    """
    by_uuid = {each.uuid: each for each in devices}
    known = {row[0] for row in tx.rows(KNOWN, {}, list(by_uuid))}
    # A beat waits for nobody: a GPU that is being given out is measured again in a moment.
    seen = {each.gpu.uuid: each for each in lock_free(tx, list(by_uuid), "leader")}
    busy = known - seen.keys()
    free = [uuid for uuid in by_uuid if uuid not in busy]
    shared = [uuid for uuid in free if uuid not in seen or _together(tx, seen[uuid].gpu, told, policy)]
    if told.worker_id is not None:
        _assign(tx, told.worker_id, shared, busy)
    taken = [uuid for uuid in shared if uuid not in seen or _speaks(tx, seen[uuid].gpu, told, policy)]
    at = tx.now() - min(age, timedelta(days=365))
    for uuid in sorted(taken):
        if uuid in seen:
            _update(tx, seen[uuid], by_uuid[uuid], told, at, policy)
        else:
            _insert(tx, by_uuid[uuid], told, at)
    return sorted(taken)


def tell(
    tx: Tx, told: Reporter, devices: Sequence[GpuDevice], age: timedelta, policy: LeasePolicy
) -> list[str]:
    """The same for a node; a GPU that is as it was is not written down again."""
    changed = _changed(tx, told, devices, policy)
    same = {each.uuid for each in devices} - {each.uuid for each in changed}
    return sorted([*same, *(measure(tx, told, changed, age, policy) if changed else ())])


def _changed(tx: Tx, told: Reporter, devices: Sequence[GpuDevice], policy: LeasePolicy) -> list[GpuDevice]:
    if not devices:
        return []
    found = {row[0]: row[1:] for row in tx.rows(KNOWN, {}, [each.uuid for each in devices])}
    return [
        each
        for each in devices
        if each.uuid not in found or not _same(tx.now(), told, each, found[each.uuid], policy)
    ]


def _same(
    now: datetime, told: Reporter, device: GpuDevice, row: tuple[Any, ...], policy: LeasePolicy
) -> bool:
    worker, node, total, used, outside, measured, proven, quarantined, ended, ends = row
    return (
        (worker, node, total) == (told.worker_id, told.node, device.total_mb)
        and abs(used - device.used_mb) < SAME_MB
        and (device.own_mb is None or abs(outside - _foreign(device)) < SAME_MB)
        and timedelta(0) <= now - measured < policy.silent_after / QUIET_PART
        and quarantined is None
        and (ended is None or ended < proven)
        and (ends is None or ends > now)
    )


def _together(tx: Tx, gpu: Gpu, told: Reporter, policy: LeasePolicy) -> bool:
    """Whether both may see one card: they are on one node, or nobody else tells of it any more."""
    return gpu.node_id == told.node or _speaks(tx, gpu, told, policy)


def _speaks(tx: Tx, gpu: Gpu, told: Reporter, policy: LeasePolicy) -> bool:
    if gpu.worker_id == told.worker_id and gpu.node_id == told.node:
        return True
    if gpu.worker_id is not None and gpu.worker_id == told.worker_id:
        return True
    if tx.now() - gpu.measured_at > policy.silent_after:
        return True
    if gpu.worker_id is None:
        return told.worker_id is not None and gpu.node_id == told.node
    return not _serves(tx, gpu.worker_id)


def _serves(tx: Tx, worker_id: WorkerId) -> bool:
    row = record(tx, select(workers.c.status).where(workers.c.id == worker_id))
    return row is not None and row["status"] in SERVING


def _assign(tx: Tx, worker_id: WorkerId, shared: Sequence[str], busy: Set[str]) -> None:
    """Which cards a worker has. One that it has no more is forgotten, unless somebody holds it: no hoard of rows."""
    mine = worker_gpus.c.worker_id == worker_id
    known = set(values(tx, select(worker_gpus.c.uuid).where(mine)))
    uuids = set(shared) | (known & busy)
    if known == uuids:
        return
    if gone := known - uuids:
        tx.execute(delete(worker_gpus).where(mine, worker_gpus.c.uuid.in_(gone)))
        held = select(leases.c.token).where(
            leases.c.gpu_uuid == gpus.c.uuid, leases.c.status == LeaseState.ACTIVE.value
        )
        tx.execute(delete(gpus).where(gpus.c.uuid.in_(gone), gpus.c.worker_id == worker_id, ~exists(held)))
    for uuid in sorted(uuids - known):
        tx.execute(insert(worker_gpus).values(worker_id=worker_id, uuid=uuid))


def _insert(tx: Tx, device: GpuDevice, told: Reporter, at: datetime) -> None:
    """What is on it before anybody had a lease is its worker's own, or outsiders'."""
    outside = 0 if device.own_mb is None and told.worker_id is not None else _foreign(device)
    last = select(func.max(leases.c.lease_seq)).where(leases.c.gpu_uuid == device.uuid)
    _put(
        tx,
        insert(gpus).values(
            uuid=device.uuid,
            node_id=told.node,
            gpu_index=device.index,
            name=device.name,
            worker_id=told.worker_id,
            total_mb=device.total_mb,
            used_mb=device.used_mb,
            outside_mb=outside,
            utilisation=device.utilisation,
            processes=_text(device),
            measured_at=at,
            proven_at=at,
            # It may have been here before: whoever held it then must not be taken for a later holder.
            lease_seq=int(values(tx, last)[0] or 0),
        ),
    )


def _put(tx: Tx, new: Insert) -> None:
    """Two that tell of the same card at once: one of them begins anew, and finds the other's row."""
    try:
        tx.execute(new)
    except IntegrityError as error:
        raise Contended("another has told of this GPU at the same time") from error


def _foreign(device: GpuDevice) -> int:
    return max(0, device.used_mb - (device.own_mb or 0))


def _update(
    tx: Tx, seen: Standing, device: GpuDevice, told: Reporter, at: datetime, policy: LeasePolicy
) -> None:
    gpu = seen.gpu
    if at < gpu.measured_at <= tx.now():
        return  # an older look that came late
    unknown = device.own_mb is None and told.worker_id is not None
    found = Measurement(
        at=at,
        total_mb=device.total_mb,
        used_mb=device.used_mb,
        own_mb=None if unknown else device.own_mb or 0,
        pids=tuple(pid for pid, _ in device.processes),
    )
    kept = account(seen, found, policy, reporter=told.worker_id, last=_last_end(tx, seen))
    _tell(gpu, kept)
    tx.run(
        MEASURED,
        {
            "b_uuid": gpu.uuid,
            "b_node": told.node,
            "b_index": device.index,
            "b_name": device.name,
            "b_worker": told.worker_id,
            "b_total": device.total_mb,
            "b_used": device.used_mb,
            "b_outside": kept.outside_mb,
            "b_utilisation": device.utilisation,
            "b_processes": _text(device),
            "b_measured": at,
            "b_proven": kept.proven_at,
            "b_quarantined": None if kept.quarantine is None else gpu.quarantined_at or tx.now(),
            "b_why": kept.quarantine,
        },
    )


def _last_end(tx: Tx, seen: Standing) -> LastEnd | None:
    """Only one since the GPU was proven counts."""
    if not seen.ends:
        return None
    rows = tx.rows(LAST_END, {"b_uuid": seen.gpu.uuid})
    return LastEnd(at=rows[0][0], agent=rows[0][1]) if rows else None


def _tell(gpu: Gpu, kept: Account) -> None:
    if kept.quarantine is not None and gpu.quarantined_at is None:
        log.warning("gpu.quarantined", gpu=gpu.uuid, node=gpu.node_id, reason=kept.quarantine)
    elif kept.quarantine is None and gpu.quarantined_at is not None:
        log.info("gpu.cleared", gpu=gpu.uuid, node=gpu.node_id)


def _text(device: GpuDevice) -> str:
    return json.dumps([list(each) for each in device.processes])
