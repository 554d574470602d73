"""Leases that somebody asked for: written down, kept, ended and listed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, bindparam, delete, exists, func, or_, select, update

from herdsman.core.lease import Lease
from herdsman.core.leasing import Gpu
from herdsman.core.model import WorkerId
from herdsman.core.reasons import Reason
from herdsman.core.states import LEASE, LeaseState
from herdsman.db.connection import Tx, values
from herdsman.db.paging import beyond, check_limit, cursor
from herdsman.db.schema import gpus, jobs, leases
from herdsman.db.statements import Hot, Row
from herdsman.store.leases import GIVE, RAISE

BATCH = 500
_ACTIVE = LeaseState.ACTIVE.value
_COLUMNS = tuple(leases.c)

FIND = Hot(select(*_COLUMNS).where(leases.c.token == bindparam("b_token")))
KEEP = Hot(
    update(leases)
    .where(
        leases.c.token == bindparam("b_token"),
        leases.c.status == bindparam("b_active", _ACTIVE),
        leases.c.expires_at > bindparam("b_now"),
    )
    .values(expires_at=bindparam("b_expires"), last_heartbeat=bindparam("b_now"))
)
END = Hot(
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
LEASED = Hot(
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
OVERDUE = Hot(
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


def give(tx: Tx, new: NewLease, gpu: Gpu | None, *, mode: str = "gpu") -> Lease:
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


def find(tx: Tx, token: str) -> Lease | None:
    rows = tx.rows(FIND, {"b_token": token})
    return _to_lease(rows[0]) if rows else None


def keep(tx: Tx, lease: Lease) -> datetime | None:
    """Until when it lives now; None when it is over, which a heartbeat does not undo (L2)."""
    assert lease.ttl is not None, "a worker's lease is kept by its claim"
    expires_at = tx.now() + lease.ttl
    kept = tx.run(KEEP, {"b_token": lease.token, "b_now": tx.now(), "b_expires": expires_at})
    return expires_at if kept else None


def end(tx: Tx, token: str, to: LeaseState, reason: Reason, who: str, at: datetime | None = None) -> bool:
    """False when it had ended before."""
    moved = {"b_token": token, "b_status": to.value, "b_reason": reason.value, "b_actor": who}
    return tx.run(END, {**moved, "b_now": tx.now(), "b_ended": at or tx.now()}) == 1


def leased_mb(tx: Tx, agent: str) -> int:
    """What an agent has leased, its jobs left aside."""
    return int(tx.rows(LEASED, {"b_agent": agent, "b_now": tx.now()})[0][0] or 0)


def expire(tx: Tx, who: str) -> int:
    """Mark the next batch of leases whose time is over (S2-60)."""
    found = tx.rows(OVERDUE, {"b_now": tx.now()})
    for token, expires_at in found:
        end(tx, token, LeaseState.EXPIRED, Reason.LEASE_EXPIRED, who, expires_at)
    return len(found)


def prune(tx: Tx, before: datetime) -> int:
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


def page(tx: Tx, *, agent: str | None, ended: bool, after: str | None = None, limit: int = 50) -> LeasePage:
    """Newest first; only live ones unless `ended`."""
    check_limit(limit)
    query = select(*_COLUMNS)
    if not ended:
        query = query.where(leases.c.status == _ACTIVE, _live(tx.now()))
    if agent is not None:
        query = query.where(leases.c.agent_name == agent)
    if after is not None:
        query = query.where(beyond(leases.c.created_at, leases.c.token, after))
    query = query.order_by(leases.c.created_at.desc(), leases.c.token.desc()).limit(limit + 1)
    found = [_to_lease(tuple(row)) for row in tx.execute(query)]
    last = found[limit - 1] if len(found) > limit else None
    return LeasePage(tuple(found[:limit]), last and cursor(last.created_at, last.token))


def _live(now: datetime) -> ColumnElement[bool]:
    return or_(leases.c.worker_id.is_not(None), leases.c.expires_at > now)


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
