"""Workers: registered, moved through their states, and kept alive by their heartbeats."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

from sqlalchemy import bindparam, insert, select, update

from herdsman.db.connection import Record, Tx, record, records, values
from herdsman.db.paging import beyond, check_limit, cursor
from herdsman.db.schema import jobs, workers
from herdsman.db.statements import PreparedStatement, one_of
from herdsman.errors import NotFound, StaleWrite
from herdsman.fleet.model import GpuDevice, GpuReport, Worker
from herdsman.ids import PoolId, WorkerId, check_name
from herdsman.json_text import clean
from herdsman.states import SERVING, WORKER, Reason, WorkerStatus
from herdsman.text import VERSION, release

BEAT = PreparedStatement(
    update(workers)
    .where(workers.c.id == bindparam("b_id"), one_of(workers.c.status, SERVING))
    .values(last_heartbeat=bindparam("b_now"))
)
REPORT = PreparedStatement(
    update(workers)
    .where(workers.c.id == bindparam("b_id"))
    .values(
        ready=bindparam("b_ready"),
        gpu_seen=bindparam("b_seen"),
        gpu_fault=bindparam("b_fault"),
        disk_total_mb=bindparam("b_disk"),
        disk_free_mb=bindparam("b_free"),
    )
)
METADATA = PreparedStatement(select(workers.c.metadata).where(workers.c.id == bindparam("b_id")).with_for_update())
MEMORY = PreparedStatement(
    update(workers)
    .where(workers.c.id == bindparam("b_id"))
    .values(vram_at=bindparam("b_at"), metadata=bindparam("b_metadata"))
)
STATE = PreparedStatement(select(workers.c.status).where(workers.c.id == bindparam("b_id")))
BATCH = 500
LONGEST_FAULT = 255
MOST_GPUS = 16
MOST_GPU_PROCESSES = 32


def register_worker(
    tx: Tx,
    worker_id: WorkerId,
    *,
    pool: PoolId,
    instance_type: str | None = None,
    metadata: Mapping[str, object] | None = None,
    provider: str | None = None,
    instance_name: str | None = None,
) -> None:
    """The row comes first: nothing may run that is not written down."""
    now = tx.now()
    tx.execute(
        insert(workers).values(
            id=worker_id,
            pool=pool,
            instance_type=instance_type,
            metadata=dict(metadata or {}),
            provider=provider,
            instance_name=instance_name,
            status=WorkerStatus.SPAWNING.value,
            reason=Reason.REGISTERED.value,
            actor="leader",
            version=1,
            created_at=now,
            updated_at=now,
            entered_state_at=now,
        )
    )


def move_worker(tx: Tx, worker_id: WorkerId, to: WorkerStatus, reason: Reason, who: str) -> None:
    """The state table is the guard; a worker that has moved on is left alone."""
    sources = [state.value for state in WORKER.sources(to)]
    changed = tx.execute(
        update(workers)
        .where(workers.c.id == worker_id, workers.c.status.in_(sources))
        .values(_moved(tx, to, reason, who))
    ).rowcount
    if changed == 0:
        state = get_worker(tx, worker_id).status
        raise StaleWrite(f"worker {worker_id!r} is {state} and cannot become {to}")


def move_workers(
    tx: Tx, here: WorkerStatus, to: WorkerStatus, reason: Reason, who: str, *, pool: PoolId | None = None
) -> int:
    """All that are in a state, or those of a pool; how many. Their rows are locked in the order of their ids."""
    assert WORKER.allows(here, to)
    there = select(workers.c.id).where(workers.c.status == here.value)
    mine = there if pool is None else there.where(workers.c.pool == pool)
    found = values(tx, mine.order_by(workers.c.id).with_for_update())
    for start in range(0, len(found), BATCH):
        some = workers.c.id.in_(found[start : start + BATCH])
        tx.execute(update(workers).where(some).values(_moved(tx, to, reason, who)))
    return len(found)


def _moved(tx: Tx, to: WorkerStatus, reason: Reason, who: str) -> dict[str, Any]:
    return {
        "status": to.value,
        "reason": reason.value,
        "actor": who,
        "version": workers.c.version + 1,
        "updated_at": tx.now(),
        "entered_state_at": tx.now(),
    }


def lock_free_workers(tx: Tx, worker_id: WorkerId) -> bool:
    """Whether the worker holds no job; it will not get one before this transaction ends."""
    row = record(tx, select(workers.c.id).where(workers.c.id == worker_id).with_for_update())
    busy = record(tx, select(jobs.c.job_id).where(jobs.c.worker_id == worker_id))
    return row is not None and busy is None


def record_heartbeats(tx: Tx, worker_id: WorkerId, report: GpuReport | None = None) -> WorkerStatus:
    """Note that the worker lives, and what it says of its GPUs; returns the status that its reply carries."""
    check_name("worker_id", worker_id, 128)
    alive = tx.run(BEAT, {"b_id": worker_id, "b_now": tx.now()}) == 1
    found = tx.rows(STATE, {"b_id": worker_id})
    if not found:
        raise NotFound(f"there is no worker {worker_id!r}")
    state = WorkerStatus(found[0][0])
    if not alive:
        error = get_worker(tx, worker_id).error
        why = f" ({error})" if error else ""
        raise StaleWrite(f"worker {worker_id!r} is {state}{why}: stop its handler and exit")
    if report is not None:
        _note_report(tx, worker_id, report)
    return state


def _note_report(tx: Tx, worker_id: WorkerId, report: GpuReport) -> None:
    fault = None if report.fault is None else report.fault[:LONGEST_FAULT].replace("\0", "\ufffd")
    reported = {
        "b_ready": int(report.ready),
        "b_seen": None if report.seen is None else int(report.seen),
        "b_fault": fault,
        "b_disk": report.disk_total_mb,
        "b_free": report.disk_free_mb,
    }
    tx.run(REPORT, {"b_id": worker_id, **reported})
    if report.vram_total_mb is None:
        return
    measured_at = tx.now() - report.vram_age
    noted = {
        "vram_total_mb": report.vram_total_mb,
        "vram_used_mb": report.vram_used_mb,
        "vram_timestamp": measured_at.isoformat(),
        **({"gpus": [_to_gpu(each) for each in report.devices[:MOST_GPUS]]} if report.devices else {}),
    }
    ((known,),) = tx.rows(METADATA, {"b_id": worker_id})
    tx.run(MEMORY, {"b_id": worker_id, "b_at": measured_at, "b_metadata": {**known, **noted}})


def note_version(tx: Tx, worker_id: WorkerId, version: str) -> None:
    """Of the program that the worker runs; what is no version is not kept."""
    if release(version):
        note(tx, worker_id, {VERSION: version})


def _to_gpu(device: GpuDevice) -> dict[str, object]:
    """What a worker says is bounded: a bad one must not fill the table (X9)."""
    return {
        **asdict(device),
        "uuid": clean(device.uuid, 64),
        "name": clean(device.name, 64),
        "processes": [list(each) for each in device.processes[:MOST_GPU_PROCESSES]],
    }


def get_worker(tx: Tx, worker_id: WorkerId) -> Worker:
    check_name("worker_id", worker_id, 128)
    row = record(tx, select(workers).where(workers.c.id == worker_id))
    if row is None:
        raise NotFound(f"there is no worker {worker_id!r}")
    return _to_worker(row)


@dataclass(frozen=True, slots=True)
class WorkerPage:
    workers: tuple[Worker, ...]
    next: str | None
    """Where the next page begins; None on the last one."""


def page_workers(
    tx: Tx,
    *,
    states: Sequence[WorkerStatus] = (),
    pool: PoolId | None = None,
    after: str | None = None,
    limit: int = 50,
) -> WorkerPage:
    """Newest first; of these states and this pool only, where they are named."""
    check_limit(limit)
    query = select(workers)
    if states:
        query = query.where(one_of(workers.c.status, states))
    if pool is not None:
        check_name("pool", pool, 128)
        query = query.where(workers.c.pool == pool)
    if after is not None:
        query = query.where(beyond(workers.c.created_at, workers.c.id, after))
    query = query.order_by(workers.c.created_at.desc(), workers.c.id.desc()).limit(limit + 1)
    found = [_to_worker(row) for row in records(tx, query)]
    last = found[limit - 1] if len(found) > limit else None
    return WorkerPage(tuple(found[:limit]), last and cursor(last.created_at, last.id))


def _to_worker(row: Record) -> Worker:
    same: dict[str, Any] = {each.name: row[each.name] for each in fields(Worker) if each.name in workers.c}
    same |= {"status": WorkerStatus(row["status"]), "reason": Reason(row["reason"]), "error": row["error_reason"]}
    return Worker(**same)


FIELD = "types"
UNFIT = "unfit"
MOST_TYPES = 200
"""A worker with more counts as one that takes anything: what it says is bounded (X9)."""


def note_types(tx: Tx, worker_id: WorkerId, types: Sequence[str]) -> None:
    note(tx, worker_id, {FIELD: sorted(types) if len(types) <= MOST_TYPES else []})


def note_unfit(tx: Tx, worker_id: WorkerId, unfit: Mapping[str, str]) -> None:
    """Which of them it does not take at the moment, and why."""
    bounded = sorted(unfit.items())[:MOST_TYPES]
    note(tx, worker_id, {UNFIT: {kind: clean(why, LONGEST_FAULT) for kind, why in bounded}})


def note(tx: Tx, worker_id: WorkerId, noted: Mapping[str, object]) -> None:
    """Kept beside what else is known of the worker. Nothing is written when it is known already."""
    for (known,) in tx.rows(METADATA, {"b_id": worker_id}):
        if any((known.get(name) or None) != (value or None) for name, value in noted.items()):
            changed = {**known, **noted}
            tx.execute(update(workers).where(workers.c.id == worker_id).values(metadata=changed))


def unfit_of(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    return cast("dict[str, str]", metadata.get(UNFIT) or {})


def unfit_of_living(tx: Tx) -> Mapping[str, Mapping[str, str]]:
    """By worker the types that it does not take, and why."""
    return _noted_of_living(tx, UNFIT)


def types_of_living(tx: Tx) -> Mapping[str, frozenset[str]]:
    """Of all that live and have named some; who is not in it may take anything."""
    return {worker: frozenset(types) for worker, types in _noted_of_living(tx, FIELD).items()}


def _noted_of_living(tx: Tx, name: str) -> dict[str, Any]:
    query = select(workers.c.id, workers.c.metadata).where(one_of(workers.c.status, WORKER.live))
    return {row["id"]: row["metadata"][name] for row in records(tx, query) if row["metadata"].get(name)}
