"""GPUs in SQL: measured from what workers and nodes report, listed and cleared."""

import json
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import bindparam, delete, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from herdsman.db.connection import Tx, record, records, values
from herdsman.db.errors import Contended
from herdsman.db.paging import check_limit
from herdsman.db.schema import gpus, leases, worker_gpus, workers
from herdsman.db.statements import PreparedStatement
from herdsman.errors import NotFound
from herdsman.fleet.model import GpuDevice, GpuReport
from herdsman.fleet.workers_sql import MOST_GPU_PROCESSES, MOST_GPUS
from herdsman.ids import WorkerId
from herdsman.json_text import clean
from herdsman.leases.rules import Gpu, GpuUsage, LeasePolicy, account
from herdsman.leases.sql import lock_gpus, to_gpu
from herdsman.states import SERVING, LeaseStatus

log = structlog.get_logger()
LARGEST = 2**31 - 1


def bounded(devices: Iterable[GpuDevice], most: int) -> list[GpuDevice]:
    """A report cut to what the tables hold: a bad one must neither fill nor break them (X9)."""
    found: dict[str, GpuDevice] = {}
    for each in devices:
        uuid, total = clean(each.uuid, 64).strip(), _number(each.total_mb)
        if not uuid or uuid in found or len(found) >= most:
            continue
        found[uuid] = GpuDevice(
            index=_number(each.index),
            uuid=uuid,
            name=clean(each.name, 64),
            total_mb=total,
            used_mb=min(_number(each.used_mb), total),
            utilisation=None if each.utilisation is None else min(100, _number(each.utilisation)),
            processes=tuple((_number(pid), mb and _number(mb)) for pid, mb in each.processes[:MOST_GPU_PROCESSES]),
            own_mb=None if each.own_mb is None else _number(each.own_mb),
        )
    return list(found.values())


def _number(given: int) -> int:
    return max(0, min(given, LARGEST))


MOST_OF_NODE = 64
SAME_MB = 64
"""A smaller change of memory is written with the next full report."""
QUIET_PART = 4
"""An unchanged GPU is written this many times within the time after which it counts as silent."""
_KNOWN = (
    *("uuid", "worker_id", "node_id", "total_mb", "used_mb", "outside_mb"),
    *("measured_at", "proven_at", "quarantined_at"),
)
KNOWN = PreparedStatement(
    lambda listed: select(
        *(gpus.c[name] for name in _KNOWN),
        select(func.max(leases.c.ended_at)).where(leases.c.gpu_uuid == gpus.c.uuid).correlate(gpus).scalar_subquery(),
        select(func.min(leases.c.expires_at))
        .where(
            leases.c.gpu_uuid == gpus.c.uuid, leases.c.status == LeaseStatus.ACTIVE.value, leases.c.worker_id.is_(None)
        )
        .correlate(gpus)
        .scalar_subquery(),
    ).where(gpus.c.uuid.in_(listed))
)
_MEASURED = (
    *("node_id", "gpu_index", "name", "worker_id", "total_mb", "used_mb", "outside_mb", "utilisation"),
    *("processes", "measured_at", "proven_at", "quarantined_at", "quarantine_reason"),
)
MEASURED = PreparedStatement(
    update(gpus).where(gpus.c.uuid == bindparam("b_uuid")).values({name: bindparam(f"b_{name}") for name in _MEASURED})
)
LAST_END = PreparedStatement(
    select(leases.c.ended_at, leases.c.agent_name)
    .where(leases.c.gpu_uuid == bindparam("b_uuid"), leases.c.ended_at.is_not(None))
    .order_by(leases.c.ended_at.desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """A worker, or a node that reports its own GPUs."""

    node: str
    worker_id: WorkerId | None = None


def note_gpus(tx: Tx, worker_id: WorkerId, report: GpuReport, policy: LeasePolicy) -> None:
    """What a worker reports with its heartbeat. An unchanged report costs one query."""
    node = worker_id if report.node is None else clean(report.node, 128)
    found = bounded(report.devices, MOST_GPUS)
    reporter = Reporter(node=node or worker_id, worker_id=worker_id)
    if _changed(tx, reporter, found, policy):
        measure_gpus(tx, reporter, found, report.vram_age, policy)


def report_gpus(
    tx: Tx, reporter: Reporter, devices: Sequence[GpuDevice], age: timedelta, policy: LeasePolicy
) -> list[str]:
    """The same for a node; the GPUs whose report was accepted. Unchanged GPUs are not written again."""
    changed = _changed(tx, reporter, devices, policy)
    same = {each.uuid for each in devices} - {each.uuid for each in changed}
    return sorted([*same, *(measure_gpus(tx, reporter, changed, age, policy) if changed else ())])


def measure_gpus(
    tx: Tx, reporter: Reporter, devices: Sequence[GpuDevice], age: timedelta, policy: LeasePolicy
) -> list[str]:
    """Write what was measured `age` ago; the GPUs whose report was accepted.

    A GPU belongs to its last reporter until that falls silent or its worker ends: another worker of the same node
    shares the card but does not report it, and one that claims the card is elsewhere is ignored (X7).
    """
    by_uuid = {each.uuid: each for each in devices}
    known = {row[0] for row in tx.rows(KNOWN, {}, list(by_uuid))}
    # A heartbeat waits for no lock: a GPU that is being granted is measured again in a moment.
    locked = {each.gpu.uuid: each for each in lock_gpus(tx, list(by_uuid), "leader", skip_locked=True)}
    busy = known - locked.keys()
    free = [uuid for uuid in by_uuid if uuid not in busy]
    reports = {uuid: _reports(tx, usage.gpu, reporter, policy) for uuid, usage in locked.items()}
    if reporter.worker_id is not None:
        shared = [
            uuid for uuid in free if uuid not in locked or reports[uuid] or locked[uuid].gpu.node_id == reporter.node
        ]
        _assign(tx, reporter.worker_id, shared, busy)
    taken = sorted(uuid for uuid in free if uuid not in locked or reports[uuid])
    at = tx.now() - min(age, timedelta(days=365))
    for uuid in taken:
        if uuid in locked:
            _update(tx, locked[uuid], by_uuid[uuid], reporter, at, policy)
        else:
            _insert(tx, by_uuid[uuid], reporter, at)
    return taken


def _changed(tx: Tx, reporter: Reporter, devices: Sequence[GpuDevice], policy: LeasePolicy) -> list[GpuDevice]:
    if not devices:
        return []
    found = {row[0]: row[1:] for row in tx.rows(KNOWN, {}, [each.uuid for each in devices])}
    return [
        each
        for each in devices
        if each.uuid not in found or not _same(tx.now(), reporter, each, found[each.uuid], policy)
    ]


def _same(now: datetime, reporter: Reporter, device: GpuDevice, row: tuple[Any, ...], policy: LeasePolicy) -> bool:
    worker, node, total, used, outside, measured, proven, quarantined, ended, ends = row
    return (
        (worker, node, total) == (reporter.worker_id, reporter.node, device.total_mb)
        and abs(used - device.used_mb) < SAME_MB
        and (device.own_mb is None or abs(outside - _foreign(device)) < SAME_MB)
        and timedelta(0) <= now - measured < policy.silent_after / QUIET_PART
        and quarantined is None
        and (ended is None or ended < proven)
        and (ends is None or ends > now)
    )


def _reports(tx: Tx, gpu: Gpu, reporter: Reporter, policy: LeasePolicy) -> bool:
    """Whether a report of this GPU is accepted from this reporter."""
    same_worker, same_node = gpu.worker_id == reporter.worker_id, gpu.node_id == reporter.node
    if same_worker and (same_node or gpu.worker_id is not None):
        return True
    if tx.now() - gpu.measured_at > policy.silent_after:
        return True
    if gpu.worker_id is None:
        return reporter.worker_id is not None and same_node
    row = record(tx, select(workers.c.status).where(workers.c.id == gpu.worker_id))
    return row is None or row["status"] not in SERVING


def _assign(tx: Tx, worker_id: WorkerId, shared: Sequence[str], busy: Set[str]) -> None:
    """Which cards a worker has. One that it has no more is deleted, unless it has a lease."""
    mine = worker_gpus.c.worker_id == worker_id
    known = set(values(tx, select(worker_gpus.c.uuid).where(mine)))
    uuids = set(shared) | (known & busy)
    if known == uuids:
        return
    if gone := known - uuids:
        tx.execute(delete(worker_gpus).where(mine, worker_gpus.c.uuid.in_(gone)))
        held = select(leases.c.token).where(
            leases.c.gpu_uuid == gpus.c.uuid, leases.c.status == LeaseStatus.ACTIVE.value
        )
        tx.execute(delete(gpus).where(gpus.c.uuid.in_(gone), gpus.c.worker_id == worker_id, ~exists(held)))
    for uuid in sorted(uuids - known):
        tx.execute(insert(worker_gpus).values(worker_id=worker_id, uuid=uuid))


def _insert(tx: Tx, device: GpuDevice, reporter: Reporter, at: datetime) -> None:
    """Memory in use before the first lease is the worker's own, or outsiders'."""
    own = device.own_mb is None and reporter.worker_id is not None
    last = select(func.max(leases.c.lease_seq)).where(leases.c.gpu_uuid == device.uuid)
    row = {
        **_row(device, reporter, at),
        "outside_mb": 0 if own else _foreign(device),
        "proven_at": at,
        # It may have been here before: whoever held it then must not be taken for a later holder.
        "lease_seq": int(values(tx, last)[0] or 0),
    }
    try:
        tx.execute(insert(gpus).values(row))
    except IntegrityError as error:  # reported twice at once: this transaction starts again and finds the row
        raise Contended("another has reported this GPU at the same time") from error


def _row(device: GpuDevice, reporter: Reporter, at: datetime) -> dict[str, Any]:
    return {
        "uuid": device.uuid,
        "node_id": reporter.node,
        "gpu_index": device.index,
        "name": device.name,
        "worker_id": reporter.worker_id,
        "total_mb": device.total_mb,
        "used_mb": device.used_mb,
        "utilisation": device.utilisation,
        "processes": json.dumps([list(each) for each in device.processes]),
        "measured_at": at,
    }


def _foreign(device: GpuDevice) -> int:
    return max(0, device.used_mb - (device.own_mb or 0))


def _update(tx: Tx, usage: GpuUsage, device: GpuDevice, reporter: Reporter, at: datetime, policy: LeasePolicy) -> None:
    gpu = usage.gpu
    if at < gpu.measured_at <= tx.now():
        return  # an older measurement that came late
    ended = tx.rows(LAST_END, {"b_uuid": gpu.uuid}) if usage.ends else []
    last = (ended[0][0], ended[0][1]) if ended else None
    kept = account(usage, device, at, policy, reporter=reporter.worker_id, last=last)
    if kept.quarantine is not None and gpu.quarantined_at is None:
        log.warning("gpu.quarantined", gpu=gpu.uuid, node=gpu.node_id, reason=kept.quarantine)
    elif kept.quarantine is None and gpu.quarantined_at is not None:
        log.info("gpu.cleared", gpu=gpu.uuid, node=gpu.node_id)
    row = {
        **_row(device, reporter, at),
        "outside_mb": kept.outside_mb,
        "proven_at": kept.proven_at,
        "quarantined_at": None if kept.quarantine is None else gpu.quarantined_at or tx.now(),
        "quarantine_reason": kept.quarantine,
    }
    tx.run(MEASURED, {f"b_{name}": value for name, value in row.items()})


def clear_gpu(tx: Tx, uuid: str) -> Gpu:
    """Memory in use on it now counts as outsiders', and is not waited for."""
    found = lock_gpus(tx, [uuid], "operator")
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


def page_gpus(tx: Tx, *, after: str | None = None, limit: int = 100) -> GpuPage:
    check_limit(limit)
    query = select(gpus).order_by(gpus.c.uuid).limit(limit + 1)
    if after is not None:
        query = query.where(gpus.c.uuid > clean(after, 64))
    found = [to_gpu(row) for row in tx.execute(query)]
    live = (leases.c.worker_id.is_not(None)) | (leases.c.expires_at > tx.now())
    sums = (
        select(leases.c.gpu_uuid, func.sum(leases.c.memory_mb).label("leased"))
        .where(leases.c.gpu_uuid.in_([gpu.uuid for gpu in found]), leases.c.status == LeaseStatus.ACTIVE.value, live)
        .group_by(leases.c.gpu_uuid)
    )
    leased = {row["gpu_uuid"]: int(row["leased"]) for row in records(tx, sums)} if found else {}
    shown = tuple((gpu, leased.get(gpu.uuid, 0)) for gpu in found[:limit])
    return GpuPage(shown, found[limit - 1].uuid if len(found) > limit else None)
