"""Leases that come with a worker's claims: a worker with a job has its GPUs, and without one it has none."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from sqlalchemy import bindparam, delete, exists, func, insert, or_, select, update

from herdsman.db.connection import Tx, values
from herdsman.db.paging import beyond, check_limit, cursor
from herdsman.db.schema import gpus, jobs, leases, worker_gpus
from herdsman.db.statements import MOST_LISTED, PreparedStatement, Row
from herdsman.ids import JobId, WorkerId
from herdsman.leases.gpus_sql import LOCKED, lock_gpus, to_gpu
from herdsman.leases.rules import Gpu, Lease, LeasePolicy, Standing, Wish, free_mb, obstacle
from herdsman.states import LEASE, LeaseState, Reason

_ACTIVE = LeaseState.ACTIVE.value
THEIRS = PreparedStatement(
    lambda listed: select(worker_gpus.c.worker_id, worker_gpus.c.uuid).where(
        worker_gpus.c.worker_id.in_(listed)
    )
)
GROW = PreparedStatement(
    update(leases)
    .where(
        leases.c.worker_id == bindparam("b_worker"),
        leases.c.gpu_uuid == bindparam("b_uuid"),
        leases.c.status == bindparam("b_active", _ACTIVE),
    )
    .values(expires_at=bindparam("b_expires"), last_heartbeat=bindparam("b_now"))
)
WIDEN = PreparedStatement(
    update(leases)
    .where(
        leases.c.worker_id == bindparam("b_worker"),
        leases.c.gpu_uuid == bindparam("b_uuid"),
        leases.c.status == bindparam("b_active", _ACTIVE),
        leases.c.memory_mb < bindparam("b_memory"),
    )
    .values(memory_mb=bindparam("b_memory"), exclusive=bindparam("b_exclusive"))
)
RENEW = PreparedStatement(
    update(leases)
    .where(leases.c.worker_id == bindparam("b_worker"), leases.c.status == bindparam("b_active", _ACTIVE))
    .values(expires_at=bindparam("b_expires"), last_heartbeat=bindparam("b_now"))
)
RAISE = PreparedStatement(
    update(gpus).where(gpus.c.uuid == bindparam("b_uuid")).values(lease_seq=bindparam("b_seq"))
)
GIVE = PreparedStatement(
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
    seen = {each.gpu.uuid: each for each in lock_gpus(tx, wanted, "leader")}
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
        # A worker's lease is never asked for by name, so its name only has to be its own.
        tx.run(
            GIVE,
            {
                "token": sha256(json.dumps([worker_id, gpu.uuid, seq]).encode()).hexdigest()[:40],
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


BATCH = 500
_COLUMNS = tuple(leases.c)
FIND = PreparedStatement(select(*_COLUMNS).where(leases.c.token == bindparam("b_token")))
KEEP = PreparedStatement(
    update(leases)
    .where(
        leases.c.token == bindparam("b_token"),
        leases.c.status == bindparam("b_active", _ACTIVE),
        leases.c.expires_at > bindparam("b_now"),
    )
    .values(expires_at=bindparam("b_expires"), last_heartbeat=bindparam("b_now"))
)
END = PreparedStatement(
    update(leases)
    .where(leases.c.token == bindparam("b_token"), leases.c.status == bindparam("b_active", _ACTIVE))
    .values(
        status=bindparam("b_status"),
        reason=bindparam("b_reason"),
        actor=bindparam("b_actor"),
        version=leases.c.version + 1,
        updated_at=bindparam("b_now"),
        ended_at=bindparam("b_ended"),
    )
)
LEASED = PreparedStatement(
    select(func.sum(leases.c.memory_mb)).where(
        leases.c.agent_name == bindparam("b_agent"),
        leases.c.status == bindparam("b_active", _ACTIVE),
        leases.c.worker_id.is_(None),
        leases.c.expires_at > bindparam("b_now"),
    )
)
# Of a worker's lease only one whose worker has no job: two that ended at once may each have seen the other.
_FORSAKEN = or_(
    leases.c.worker_id.is_(None), ~exists(select(jobs.c.job_id).where(jobs.c.worker_id == leases.c.worker_id))
)
OVERDUE = PreparedStatement(
    select(leases.c.token, leases.c.expires_at)
    .where(
        leases.c.status == bindparam("b_active", _ACTIVE),
        leases.c.expires_at <= bindparam("b_now"),
        _FORSAKEN,
    )
    .order_by(leases.c.expires_at)
    .limit(BATCH)
    .with_for_update(skip_locked=True, of=leases)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLease:
    token: str
    agent: str
    memory_mb: int
    exclusive: bool
    ttl: timedelta
    actor: str
    metadata: Mapping[str, object]
    overruled: str | None = None


def grant_lease(tx: Tx, new: NewLease, gpu: Gpu | None, *, mode: str = "gpu") -> Lease:
    """Write it down; `gpu` is locked. `Duplicate` when there is one of this name."""
    seq = 0 if gpu is None else gpu.lease_seq + 1
    if gpu is not None:
        tx.run(RAISE, {"b_uuid": gpu.uuid, "b_seq": seq})
    now = tx.now()
    tx.run(
        GIVE,
        {
            "token": new.token,
            "agent_name": new.agent,
            "gpu_index": None if gpu is None else gpu.index,
            "mode": mode,
            "created_at": now,
            "expires_at": now + new.ttl,
            "last_heartbeat": None,
            "status": _ACTIVE,
            "reason": Reason.GRANTED.value,
            "actor": new.actor,
            "version": 1,
            "updated_at": now,
            "metadata": dict(new.metadata),
            "gpu_uuid": None if gpu is None else gpu.uuid,
            "node_id": None if gpu is None else gpu.node_id,
            "memory_mb": new.memory_mb,
            "exclusive": int(new.exclusive),
            "ttl_s": new.ttl.total_seconds(),
            "lease_seq": seq,
            "worker_id": None,
            "overruled": new.overruled,
        },
    )
    return Lease(
        token=new.token,
        agent=new.agent,
        state=LeaseState.ACTIVE,
        reason=Reason.GRANTED.value,
        mode=mode,
        node_id=None if gpu is None else gpu.node_id,
        gpu_uuid=None if gpu is None else gpu.uuid,
        gpu_index=None if gpu is None else gpu.index,
        memory_mb=new.memory_mb,
        exclusive=new.exclusive,
        ttl=new.ttl,
        seq=seq,
        worker_id=None,
        created_at=now,
        expires_at=now + new.ttl,
        last_heartbeat=None,
        ended_at=None,
        overruled=new.overruled,
        metadata=new.metadata,
    )


def find_lease(tx: Tx, token: str) -> Lease | None:
    rows = tx.rows(FIND, {"b_token": token})
    return _to_lease(rows[0]) if rows else None


def keep_lease(tx: Tx, lease: Lease) -> datetime | None:
    """Until when it lives now; None when it is over, which a heartbeat does not undo (L2)."""
    assert lease.ttl is not None, "a worker's lease is kept by its claim"
    expires_at = tx.now() + lease.ttl
    kept = tx.run(KEEP, {"b_token": lease.token, "b_now": tx.now(), "b_expires": expires_at})
    return expires_at if kept else None


def end_lease(
    tx: Tx, token: str, to: LeaseState, reason: Reason, who: str, at: datetime | None = None
) -> bool:
    """False when it had ended before."""
    moved = {"b_token": token, "b_status": to.value, "b_reason": reason.value, "b_actor": who}
    return tx.run(END, {**moved, "b_now": tx.now(), "b_ended": at or tx.now()}) == 1


def leased_mb(tx: Tx, agent: str) -> int:
    """What an agent has leased, its jobs left aside."""
    return int(tx.rows(LEASED, {"b_agent": agent, "b_now": tx.now()})[0][0] or 0)


def expire_leases(tx: Tx, who: str) -> int:
    """Mark the next batch of leases whose time is over (S2-60)."""
    found = tx.rows(OVERDUE, {"b_now": tx.now()})
    for token, expires_at in found:
        end_lease(tx, token, LeaseState.EXPIRED, Reason.LEASE_EXPIRED, who, expires_at)
    return len(found)


def prune_leases(tx: Tx, before: datetime) -> int:
    """Remove the next batch of leases that ended before then, and of GPUs that nobody has measured since."""
    found: list[str] = []
    for state in LEASE.terminal:
        query = select(leases.c.token).where(leases.c.status == state.value, leases.c.expires_at < before)
        found += values(tx, query.order_by(leases.c.expires_at).limit(BATCH))
    if found:
        tx.execute(delete(leases).where(leases.c.token.in_(found)))
    held = select(leases.c.token).where(leases.c.gpu_uuid == gpus.c.uuid)
    old = values(tx, select(gpus.c.uuid).where(gpus.c.measured_at < before, ~exists(held)).limit(BATCH))
    if old:
        tx.execute(delete(gpus).where(gpus.c.uuid.in_(old)))
    return len(found) + len(old)


@dataclass(frozen=True, slots=True)
class LeasePage:
    leases: tuple[Lease, ...]
    next: str | None


def page_leases(
    tx: Tx, *, agent: str | None, ended: bool, after: str | None = None, limit: int = 50
) -> LeasePage:
    """Newest first; only live ones unless `ended`."""
    check_limit(limit)
    query = select(*_COLUMNS)
    if not ended:
        query = query.where(
            leases.c.status == _ACTIVE, or_(leases.c.worker_id.is_not(None), leases.c.expires_at > tx.now())
        )
    if agent is not None:
        query = query.where(leases.c.agent_name == agent)
    if after is not None:
        query = query.where(beyond(leases.c.created_at, leases.c.token, after))
    query = query.order_by(leases.c.created_at.desc(), leases.c.token.desc()).limit(limit + 1)
    found = [_to_lease(tuple(row)) for row in tx.execute(query)]
    last = found[limit - 1] if len(found) > limit else None
    return LeasePage(tuple(found[:limit]), last and cursor(last.created_at, last.token))


def _to_lease(row: Row | Sequence[Any]) -> Lease:
    found = dict(zip((column.name for column in _COLUMNS), row, strict=True))
    worker = found["worker_id"]
    return Lease(
        token=found["token"],
        agent=found["agent_name"],
        state=LeaseState(found["status"]),
        reason=found["reason"],
        mode=found["mode"],
        node_id=found["node_id"],
        gpu_uuid=found["gpu_uuid"],
        gpu_index=found["gpu_index"],
        memory_mb=found["memory_mb"],
        exclusive=bool(found["exclusive"]),
        ttl=None if found["ttl_s"] is None else timedelta(seconds=found["ttl_s"]),
        seq=int(found["lease_seq"]),
        worker_id=None if worker is None else WorkerId(worker),
        created_at=found["created_at"],
        expires_at=found["expires_at"],
        last_heartbeat=found["last_heartbeat"],
        ended_at=found["ended_at"],
        overruled=found["overruled"],
        metadata=found["metadata"],
    )
