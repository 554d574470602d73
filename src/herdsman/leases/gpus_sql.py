"""What somebody says of GPUs, cut to what the tables hold."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import Insert, Select, bindparam, delete, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from herdsman.db.connection import Tx, record, records, values
from herdsman.db.errors import Contended
from herdsman.db.paging import check_limit
from herdsman.db.schema import gpus, leases, worker_gpus, workers
from herdsman.db.statements import MOST_LISTED, PreparedStatement, Row
from herdsman.errors import NotFound
from herdsman.fleet.model import GpuDevice, GpuReport
from herdsman.fleet.workers_sql import MOST_GPU_PROCESSES, MOST_GPUS
from herdsman.ids import WorkerId
from herdsman.json_text import clean
from herdsman.leases.rules import Gpu, Held, LastEnd, LeasePolicy, Measurement, Standing, account
from herdsman.states import SERVING, LeaseState, Reason

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


LATELY = timedelta(minutes=1)
MOST_GPUS_OF_A_WORKER = 1000
"""The most that a request for a lease looks at; those that had the most free when they were measured."""
_ACTIVE = LeaseState.ACTIVE.value
_COLUMNS = tuple(gpus.c)
BY_NODE = PreparedStatement(
    select(*_COLUMNS)
    .where(gpus.c.node_id == bindparam("b_node"))
    .order_by(gpus.c.uuid)
    .limit(MOST_GPUS_OF_A_WORKER)
)
ALL = PreparedStatement(
    select(*_COLUMNS)
    .order_by((gpus.c.total_mb - gpus.c.used_mb).desc(), gpus.c.uuid)
    .limit(MOST_GPUS_OF_A_WORKER)
)
LOCKED = PreparedStatement(
    lambda listed: (
        # In one order for everybody, so that no two can wait for each other.
        select(*_COLUMNS).where(gpus.c.uuid.in_(listed)).order_by(gpus.c.uuid).with_for_update()
    )
)
FREE = PreparedStatement(
    lambda listed: (
        select(*_COLUMNS)
        .where(gpus.c.uuid.in_(listed))
        .order_by(gpus.c.uuid)
        .with_for_update(skip_locked=True)
    )
)
HELD = PreparedStatement(
    lambda listed: select(
        leases.c.gpu_uuid,
        leases.c.memory_mb,
        leases.c.exclusive,
        leases.c.worker_id,
        leases.c.expires_at,
    ).where(leases.c.gpu_uuid.in_(listed), leases.c.status == bindparam("b_active", _ACTIVE))
)
ENDED = PreparedStatement(
    lambda listed: (
        select(leases.c.gpu_uuid, leases.c.worker_id, func.max(leases.c.ended_at))
        .join_from(leases, gpus, gpus.c.uuid == leases.c.gpu_uuid)
        .where(
            leases.c.gpu_uuid.in_(listed),
            leases.c.ended_at >= gpus.c.proven_at,
            # The same with a number: only then the databases look into the end of the index, not at all of it.
            leases.c.ended_at >= bindparam("b_since"),
        )
        .group_by(leases.c.gpu_uuid, leases.c.worker_id)
    )
)
OVERDUE = PreparedStatement(
    lambda listed: (
        update(leases)
        .where(
            leases.c.gpu_uuid.in_(listed),
            leases.c.status == bindparam("b_active", _ACTIVE),
            leases.c.expires_at <= bindparam("b_now"),
            leases.c.worker_id.is_(None),
        )
        .values(
            status=LeaseState.EXPIRED.value,
            reason=Reason.LEASE_EXPIRED.value,
            actor=bindparam("b_actor"),
            version=leases.c.version + 1,
            updated_at=bindparam("b_now"),
            ended_at=leases.c.expires_at,
        )
    )
)


def read_standings(tx: Tx, node: str | None = None) -> list[Standing]:
    """All that could be given out, as they are now; nobody is kept from taking them meanwhile."""
    rows = tx.rows(ALL, {}) if node is None else tx.rows(BY_NODE, {"b_node": node})
    return standings(tx, [to_gpu(row) for row in rows])


def lock_gpus(tx: Tx, uuids: Sequence[str], who: str) -> list[Standing]:
    """The same for these, and nobody else gives them out before this transaction ends (L1).

    A lease that is over by its time is marked as such: its holder may be sending a heartbeat in this moment,
    and only one of the two may win (L2).
    """
    return _locked(tx, uuids, who, LOCKED)


def lock_free_gpus(tx: Tx, uuids: Sequence[str], who: str) -> list[Standing]:
    """The same, without those that another gives out in this moment: nobody is waited for."""
    return _locked(tx, uuids, who, FREE)


def _locked(tx: Tx, uuids: Sequence[str], who: str, how: PreparedStatement) -> list[Standing]:
    found = [to_gpu(row) for each in _pieces(uuids) for row in tx.rows(how, {}, each)]
    for each in _pieces([gpu.uuid for gpu in found]):
        tx.run(OVERDUE, {"b_now": tx.now(), "b_actor": who}, each)
    return standings(tx, found)


def standings(tx: Tx, found: Sequence[Gpu]) -> list[Standing]:
    uuids = [gpu.uuid for gpu in found]
    live, over = _held(tx, uuids)
    ends = _ended(tx, found)
    return [
        Standing(
            gpu=gpu,
            live=tuple(live.get(gpu.uuid, ())),
            ends=(*ends.get(gpu.uuid, ()), *((at, None) for at in over.get(gpu.uuid, ()))),
        )
        for gpu in found
    ]


def to_gpu(row: Row) -> Gpu:
    found = dict(zip((column.name for column in _COLUMNS), row, strict=True))
    worker = found["worker_id"]
    return Gpu(
        uuid=found["uuid"],
        node_id=found["node_id"],
        index=found["gpu_index"],
        name=found["name"],
        worker_id=None if worker is None else WorkerId(worker),
        total_mb=found["total_mb"],
        used_mb=found["used_mb"],
        outside_mb=found["outside_mb"],
        utilisation=found["utilisation"],
        processes=_processes(found["processes"]),
        measured_at=found["measured_at"],
        proven_at=found["proven_at"],
        lease_seq=int(found["lease_seq"]),
        quarantined_at=found["quarantined_at"],
        quarantine_reason=found["quarantine_reason"],
    )


def columns() -> Select[tuple[object, ...]]:
    return select(*_COLUMNS)


def _processes(text: str | None) -> tuple[tuple[int | None, ...], ...]:
    return () if text is None else tuple(tuple(each) for each in json.loads(text))


def _held(tx: Tx, uuids: Sequence[str]) -> tuple[Mapping[str, list[Held]], Mapping[str, list[datetime]]]:
    """A worker's lease lives as long as its claim, whatever its time says: the claim is what is renewed (L4)."""
    live: defaultdict[str, list[Held]] = defaultdict(list)
    over: defaultdict[str, list[datetime]] = defaultdict(list)
    rows = [row for each in _pieces(uuids) for row in tx.rows(HELD, {}, each)]
    for uuid, memory_mb, exclusive, worker, expires_at in rows:
        if worker is None and expires_at <= tx.now():
            over[uuid].append(expires_at)
        else:
            live[uuid].append(Held(memory_mb=memory_mb, exclusive=bool(exclusive), worker_id=worker))
    return live, over


def _ended(tx: Tx, found: Sequence[Gpu]) -> Mapping[str, list[tuple[datetime, WorkerId | None]]]:
    """Those that were looked at lately first: for one that was not, the look goes further back."""
    ends: defaultdict[str, list[tuple[datetime, WorkerId | None]]] = defaultdict(list)
    lately = max((gpu.proven_at for gpu in found), default=tx.now()) - LATELY
    recent = [gpu for gpu in found if gpu.proven_at >= lately]
    for group in (recent, [gpu for gpu in found if gpu.proven_at < lately]):
        since = {"b_since": min((gpu.proven_at for gpu in group), default=lately)}
        for each in _pieces([gpu.uuid for gpu in group]):
            for uuid, worker, at in tx.rows(ENDED, since, each):
                ends[uuid].append((at, worker))
    return ends


def _pieces(uuids: Sequence[str]) -> list[Sequence[str]]:
    ordered = sorted(set(uuids))
    return [ordered[start : start + MOST_LISTED] for start in range(0, len(ordered), MOST_LISTED)]


log = structlog.get_logger()
MOST_OF_NODE = 64
SAME_MB = 64
"""A change of so little memory is written down with the next full report."""
QUIET_PART = 4
"""A GPU on which nothing happens is written down so many times within the time after which it counts as silent."""
KNOWN = PreparedStatement(
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
MEASURED = PreparedStatement(
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
LAST_END = PreparedStatement(
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


def note_gpus(tx: Tx, worker_id: WorkerId, report: GpuReport, policy: LeasePolicy) -> None:
    """What a worker says with its beat. One whose GPUs are as they were costs one look."""
    node = worker_id if report.node is None else clean(report.node, 128)
    found = bounded(report.devices, MOST_GPUS)
    told = Reporter(node=node or worker_id, worker_id=worker_id)
    if _changed(tx, told, found, policy):
        measure_gpus(tx, told, found, report.vram_age, policy)


def measure_gpus(
    tx: Tx, told: Reporter, devices: Sequence[GpuDevice], age: timedelta, policy: LeasePolicy
) -> list[str]:
    """Write down what was measured `age` ago; the GPUs whose word was taken.

    A GPU belongs to whoever reported it last, until it falls silent or its worker ends: another worker of the same
    node shares the card but does not speak for it, and one that says it is elsewhere is not listened to (X7).
    """
    by_uuid = {each.uuid: each for each in devices}
    known = {row[0] for row in tx.rows(KNOWN, {}, list(by_uuid))}
    # A beat waits for nobody: a GPU that is being given out is measured again in a moment.
    seen = {each.gpu.uuid: each for each in lock_free_gpus(tx, list(by_uuid), "leader")}
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


def tell_gpus(
    tx: Tx, told: Reporter, devices: Sequence[GpuDevice], age: timedelta, policy: LeasePolicy
) -> list[str]:
    """The same for a node; a GPU that is as it was is not written down again."""
    changed = _changed(tx, told, devices, policy)
    same = {each.uuid for each in devices} - {each.uuid for each in changed}
    return sorted([*same, *(measure_gpus(tx, told, changed, age, policy) if changed else ())])


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
    row = record(tx, select(workers.c.status).where(workers.c.id == gpu.worker_id))
    serves = row is not None and row["status"] in SERVING
    return not serves


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
    if kept.quarantine is not None and gpu.quarantined_at is None:
        log.warning("gpu.quarantined", gpu=gpu.uuid, node=gpu.node_id, reason=kept.quarantine)
    elif kept.quarantine is None and gpu.quarantined_at is not None:
        log.info("gpu.cleared", gpu=gpu.uuid, node=gpu.node_id)
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


def _text(device: GpuDevice) -> str:
    return json.dumps([list(each) for each in device.processes])


def clear_gpu(tx: Tx, uuid: str) -> Gpu:
    """Whatever is in use on it now is outsiders', and is not waited for."""
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
