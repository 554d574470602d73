"""Leases that come with a worker's claims: a worker with a job has its GPUs, and without one it has none."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from sqlalchemy import bindparam, insert, select, update

from herdsman.core.leasing import LeasePolicy, Standing, Wish, free_mb, obstacle
from herdsman.core.model import JobId, WorkerId
from herdsman.core.reasons import Reason
from herdsman.core.states import LeaseState
from herdsman.db.connection import Tx
from herdsman.db.schema import gpus, leases, worker_gpus
from herdsman.db.statements import MOST_LISTED, Hot
from herdsman.store.standings import LOCKED, lock, to_gpu

_ACTIVE = LeaseState.ACTIVE.value

THEIRS = Hot(
    lambda listed: select(worker_gpus.c.worker_id, worker_gpus.c.uuid).where(
        worker_gpus.c.worker_id.in_(listed)
    )
)
GROW = Hot(
    update(leases)
    .where(
        leases.c.worker_id == bindparam("b_worker"),
        leases.c.gpu_uuid == bindparam("b_uuid"),
        leases.c.status == bindparam("b_active", _ACTIVE),
    )
    .values(expires_at=bindparam("b_expires"), last_heartbeat=bindparam("b_now"))
)
WIDEN = Hot(
    update(leases)
    .where(
        leases.c.worker_id == bindparam("b_worker"),
        leases.c.gpu_uuid == bindparam("b_uuid"),
        leases.c.status == bindparam("b_active", _ACTIVE),
        leases.c.memory_mb < bindparam("b_memory"),
    )
    .values(memory_mb=bindparam("b_memory"), exclusive=bindparam("b_exclusive"))
)
RENEW = Hot(
    update(leases)
    .where(leases.c.worker_id == bindparam("b_worker"), leases.c.status == bindparam("b_active", _ACTIVE))
    .values(expires_at=bindparam("b_expires"), last_heartbeat=bindparam("b_now"))
)
RAISE = Hot(update(gpus).where(gpus.c.uuid == bindparam("b_uuid")).values(lease_seq=bindparam("b_seq")))
GIVE = Hot(
    insert(leases),
    columns=(
        "token",
        "agent_name",
        "gpu_index",
        "mode",
        "created_at",
        "expires_at",
        "last_heartbeat",
        "status",
        "reason",
        "actor",
        "version",
        "updated_at",
        "metadata",
        "gpu_uuid",
        "node_id",
        "memory_mb",
        "exclusive",
        "ttl_s",
        "lease_seq",
        "worker_id",
        "overruled",
    ),
)


@dataclass(frozen=True, slots=True)
class Room:
    """What a job of a worker may take of its GPUs."""

    gpus: tuple[str, ...]
    whole: bool
    """Nothing of others is on any of them, and all may be used."""
    free_mb: int
    """Of the one that has the least."""


def rooms(tx: Tx, workers: Sequence[WorkerId], policy: LeasePolicy) -> Mapping[WorkerId, Room]:
    """What jobs of these workers may take, kept for this transaction; no entry for one that has told of no GPU."""
    theirs = _gpus_of(tx, workers)
    if not theirs:
        return {}
    wanted = [uuid for uuids in theirs.values() for uuid in uuids]
    seen = {each.gpu.uuid: each for each in lock(tx, wanted, "leader")}
    found = {worker: [seen[uuid] for uuid in uuids if uuid in seen] for worker, uuids in theirs.items()}
    return {worker: _room(tx, worker, own, policy) for worker, own in found.items() if own}


def occupy(
    tx: Tx,
    worker_id: WorkerId,
    *,
    agent: str,
    gpus: tuple[str, ...],
    memory_mb: int | None,
    job_id: JobId,
    expires_at: datetime,
) -> None:
    """The worker has these GPUs from now on, all of each without `memory_mb`; what it has already it keeps.

    The GPUs are those of its `Room`, so they are locked. The database itself ends the leases with the last job.
    """
    for row in tx.rows(LOCKED, {}, list(gpus)) if gpus else ():
        gpu = to_gpu(row)
        wanted = gpu.total_mb if memory_mb is None else memory_mb
        mine = {"b_worker": worker_id, "b_uuid": gpu.uuid}
        if tx.run(GROW, {**mine, "b_expires": expires_at, "b_now": tx.now()}):
            tx.run(WIDEN, {**mine, "b_memory": wanted, "b_exclusive": int(memory_mb is None)})
            continue
        seq = gpu.lease_seq + 1
        tx.run(RAISE, {"b_uuid": gpu.uuid, "b_seq": seq})
        tx.run(
            GIVE,
            {
                "token": _token(worker_id, gpu.uuid, seq),
                "agent_name": agent,
                "gpu_index": gpu.index,
                "mode": "gpu",
                "created_at": tx.now(),
                "expires_at": expires_at,
                "last_heartbeat": tx.now(),
                "status": _ACTIVE,
                "reason": Reason.CLAIMED.value,
                "actor": f"worker:{worker_id}",
                "version": 1,
                "updated_at": tx.now(),
                "metadata": {"job_id": job_id},
                "gpu_uuid": gpu.uuid,
                "node_id": gpu.node_id,
                "memory_mb": wanted,
                "exclusive": int(memory_mb is None),
                "ttl_s": None,
                "lease_seq": seq,
                "worker_id": worker_id,
                "overruled": None,
            },
        )


def renew_of(tx: Tx, worker_id: WorkerId, expires_at: datetime) -> int:
    """With the claims of a worker its leases are renewed; how many it has."""
    return tx.run(RENEW, {"b_worker": worker_id, "b_expires": expires_at, "b_now": tx.now()})


def _gpus_of(tx: Tx, workers: Sequence[WorkerId]) -> Mapping[WorkerId, list[str]]:
    theirs: defaultdict[WorkerId, list[str]] = defaultdict(list)
    for start in range(0, len(workers), MOST_LISTED):
        for worker, uuid in tx.rows(THEIRS, {}, workers[start : start + MOST_LISTED]):
            theirs[worker].append(uuid)
    return theirs


def _room(tx: Tx, worker: WorkerId, own: Sequence[Standing], policy: LeasePolicy) -> Room:
    one, all_of_it = Wish(memory_mb=0, worker_id=worker), Wish(memory_mb=0, exclusive=True, worker_id=worker)
    usable = all(obstacle(each, one, tx.now(), policy) is None for each in own)
    return Room(
        gpus=tuple(each.gpu.uuid for each in own),
        whole=all(obstacle(each, all_of_it, tx.now(), policy) is None for each in own),
        free_mb=min(free_mb(each, policy, worker) for each in own) if usable else 0,
    )


def _token(worker_id: WorkerId, uuid: str, seq: int) -> str:
    """A worker's lease is never asked for by name, so its name only has to be its own."""
    return sha256(json.dumps([worker_id, uuid, seq]).encode()).hexdigest()[:40]
