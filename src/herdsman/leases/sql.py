"""Leases in SQL, and the GPUs that they are on: those of a worker's claims, and those that callers ask for."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from sqlalchemy import and_, bindparam, delete, exists, func, insert, or_, select, update

from herdsman.db.connection import Tx, records, values
from herdsman.db.paging import beyond, check_limit, cursor
from herdsman.db.schema import gpus, jobs, leases, worker_gpus
from herdsman.db.statements import MOST_LISTED, PreparedStatement
from herdsman.ids import JobId, WorkerId
from herdsman.leases import rules
from herdsman.states import LEASE, LeaseStatus, Reason

_ACTIVE = LeaseStatus.ACTIVE.value
LATELY = timedelta(minutes=1)
MOST_READ = 1000
"""The most GPUs that a request for a lease reads; those with the most free memory first."""
BY_NODE = PreparedStatement(
    select(gpus).where(gpus.c.node_id == bindparam("b_node")).order_by(gpus.c.uuid).limit(MOST_READ)
)
ALL = PreparedStatement(select(gpus).order_by((gpus.c.total_mb - gpus.c.used_mb).desc(), gpus.c.uuid).limit(MOST_READ))
# Always in one order, so that two transactions cannot deadlock.
LOCKED = PreparedStatement(
    lambda listed: select(gpus).where(gpus.c.uuid.in_(listed)).order_by(gpus.c.uuid).with_for_update()
)
FREE = PreparedStatement(
    lambda listed: select(gpus).where(gpus.c.uuid.in_(listed)).order_by(gpus.c.uuid).with_for_update(skip_locked=True)
)
HELD = PreparedStatement(
    lambda listed: select(
        leases.c.gpu_uuid, leases.c.memory_mb, leases.c.exclusive, leases.c.worker_id, leases.c.expires_at
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
LAPSED = PreparedStatement(
    lambda listed: (
        update(leases)
        .where(
            leases.c.gpu_uuid.in_(listed),
            leases.c.status == bindparam("b_active", _ACTIVE),
            leases.c.expires_at <= bindparam("b_now"),
            leases.c.worker_id.is_(None),
        )
        .values(
            status=LeaseStatus.EXPIRED.value,
            reason=Reason.LEASE_EXPIRED.value,
            actor=bindparam("b_actor"),
            version=leases.c.version + 1,
            updated_at=bindparam("b_now"),
            ended_at=leases.c.expires_at,
        )
    )
)
THEIRS = PreparedStatement(
    lambda listed: select(worker_gpus.c.worker_id, worker_gpus.c.uuid).where(worker_gpus.c.worker_id.in_(listed))
)
_OF_WORKER = (leases.c.worker_id == bindparam("b_worker"), leases.c.status == bindparam("b_active", _ACTIVE))
_ON_GPU = (*_OF_WORKER, leases.c.gpu_uuid == bindparam("b_uuid"))
_RENEWED: dict[str, Any] = {"expires_at": bindparam("b_expires"), "last_heartbeat": bindparam("b_now")}
GROW = PreparedStatement(update(leases).where(*_ON_GPU).values(_RENEWED))
WIDEN = PreparedStatement(
    update(leases)
    .where(*_ON_GPU, leases.c.memory_mb < bindparam("b_memory"))
    .values(memory_mb=bindparam("b_memory"), exclusive=bindparam("b_exclusive"))
)
RENEW = PreparedStatement(update(leases).where(*_OF_WORKER).values(_RENEWED))
RAISE = PreparedStatement(update(gpus).where(gpus.c.uuid == bindparam("b_uuid")).values(lease_seq=bindparam("b_seq")))
GIVE = PreparedStatement(insert(leases))


def read_usages(tx: Tx, node: str | None = None) -> list[rules.GpuUsage]:
    """All that could be granted, as they are now, without a lock."""
    rows = tx.rows(ALL, {}) if node is None else tx.rows(BY_NODE, {"b_node": node})
    return usages_of(tx, [to_gpu(row) for row in rows])


def lock_gpus(tx: Tx, uuids: Sequence[str], who: str, *, skip_locked: bool = False) -> list[rules.GpuUsage]:
    """Lock these, so that no other transaction grants them before this one ends (L1).

    With `skip_locked` it waits for no other transaction, and leaves out what that one has locked. A lease that is over
    by its time is marked as expired: its holder may be sending a heartbeat at this moment, and only one of the two may
    win (L2).
    """
    how = FREE if skip_locked else LOCKED
    found = [to_gpu(row) for each in _pieces(uuids) for row in tx.rows(how, {}, each)]
    for each in _pieces([gpu.uuid for gpu in found]):
        tx.run(LAPSED, {"b_now": tx.now(), "b_actor": who}, each)
    return usages_of(tx, found)


def usages_of(tx: Tx, found: Sequence[rules.Gpu]) -> list[rules.GpuUsage]:
    live: defaultdict[str, list[rules.LiveLease]] = defaultdict(list)
    ends: defaultdict[str, list[tuple[datetime, WorkerId | None]]] = defaultdict(list)
    for each in _pieces([gpu.uuid for gpu in found]):
        for uuid, memory_mb, exclusive, worker, expires_at in tx.rows(HELD, {}, each):
            # A worker's lease lives as long as its claim, whatever its time says: the claim is what is renewed (L4).
            if worker is None and expires_at <= tx.now():
                ends[uuid].append((expires_at, None))
            else:
                lease = rules.LiveLease(memory_mb=memory_mb, exclusive=bool(exclusive), worker_id=worker)
                live[uuid].append(lease)
    # GPUs that were proven lately apart from the others, for which the query has to go further back.
    lately = max((gpu.proven_at for gpu in found), default=tx.now()) - LATELY
    recent = [gpu for gpu in found if gpu.proven_at >= lately]
    for group in (recent, [gpu for gpu in found if gpu.proven_at < lately]):
        since = {"b_since": min((gpu.proven_at for gpu in group), default=lately)}
        for each in _pieces([gpu.uuid for gpu in group]):
            for uuid, worker, at in tx.rows(ENDED, since, each):
                ends[uuid].append((at, worker))
    return [rules.GpuUsage(gpu=gpu, live=tuple(live[gpu.uuid]), ends=tuple(ends[gpu.uuid])) for gpu in found]


def to_gpu(row: Sequence[Any]) -> rules.Gpu:
    found: dict[str, Any] = dict(zip(gpus.c.keys(), row, strict=True))
    processes = json.loads(found.pop("processes") or "[]")
    return rules.Gpu(
        index=found.pop("gpu_index"),
        lease_seq=int(found.pop("lease_seq")),
        processes=tuple(tuple(each) for each in processes),
        **found,
    )


def _pieces(uuids: Sequence[str]) -> list[Sequence[str]]:
    ordered = sorted(set(uuids))
    return [ordered[start : start + MOST_LISTED] for start in range(0, len(ordered), MOST_LISTED)]


@dataclass(frozen=True, slots=True)
class Room:
    """What a job of a worker may take of its GPUs."""

    gpus: tuple[str, ...]
    whole: bool
    """Nothing of others is on any of them, and all may be used."""
    free_mb: int
    """Of the one that has the least."""


def rooms(tx: Tx, workers: Sequence[WorkerId], policy: rules.LeasePolicy) -> Mapping[WorkerId, Room]:
    """What jobs of these workers may take, locked for this transaction; no entry for a worker without GPUs."""
    own: defaultdict[WorkerId, list[str]] = defaultdict(list)
    for start in range(0, len(workers), MOST_LISTED):
        for worker, uuid in tx.rows(THEIRS, {}, workers[start : start + MOST_LISTED]):
            own[worker].append(uuid)
    if not own:
        return {}
    locked = lock_gpus(tx, [uuid for uuids in own.values() for uuid in uuids], "leader")
    by_uuid = {each.gpu.uuid: each for each in locked}
    found: dict[WorkerId, Room] = {}
    for worker, uuids in own.items():
        usages = [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]
        if not usages:
            continue
        part = rules.LeaseSpec(memory_mb=0, worker_id=worker)
        whole = replace(part, exclusive=True)
        usable = all(rules.refusal_reason(each, part, tx.now(), policy) is None for each in usages)
        found[worker] = Room(
            gpus=tuple(each.gpu.uuid for each in usages),
            whole=all(rules.refusal_reason(each, whole, tx.now(), policy) is None for each in usages),
            free_mb=min(rules.free_mb(each, policy, worker) for each in usages) if usable else 0,
        )
    return found


KEPT = PreparedStatement(
    select(leases.c.exclusive, leases.c.memory_mb)
    .select_from(worker_gpus.outerjoin(leases, and_(leases.c.gpu_uuid == worker_gpus.c.uuid, *_OF_WORKER)))
    .where(worker_gpus.c.worker_id == bindparam("b_worker"))
)


def kept_leases(tx: Tx, worker_id: WorkerId) -> frozenset[int | None]:
    """What the leases of a worker that goes on are for: a number of MB, None for all of a GPU, 0 where it has none."""
    rows = tx.rows(KEPT, {"b_worker": worker_id})
    return frozenset(None if exclusive else memory_mb or 0 for exclusive, memory_mb in rows)


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
        # A worker's lease is never asked for by its token, so the token only has to be unique.
        seq = json.dumps([worker_id, gpu.uuid, gpu.lease_seq + 1])
        given = {
            "token": sha256(seq.encode()).hexdigest()[:40],
            "agent_name": agent,
            "expires_at": expires_at,
            "last_heartbeat": tx.now(),
            "reason": Reason.CLAIMED.value,
            "actor": f"worker:{worker_id}",
            "metadata": {"job_id": job_id},
            "memory_mb": wanted,
            "exclusive": int(memory_mb is None),
            "worker_id": worker_id,
        }
        _insert(tx, gpu, given)


def _insert(tx: Tx, gpu: rules.Gpu | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """`gpu` is locked; its sequence number rises with each lease. `Duplicate` when the token is taken."""
    row = {**_NEW, **given, "created_at": tx.now(), "updated_at": tx.now()}
    if gpu is not None:
        row |= {"gpu_index": gpu.index, "gpu_uuid": gpu.uuid, "node_id": gpu.node_id, "lease_seq": gpu.lease_seq + 1}
        tx.run(RAISE, {"b_uuid": gpu.uuid, "b_seq": row["lease_seq"]})
    tx.run(GIVE, row)
    return row


_NEW: dict[str, Any] = {
    **dict.fromkeys(leases.c.keys()),
    "mode": "gpu",
    "status": _ACTIVE,
    "version": 1,
    "lease_seq": 0,
}


def renew_of(tx: Tx, worker_id: WorkerId, expires_at: datetime) -> int:
    """With the claims of a worker its leases are renewed; how many it has."""
    return tx.run(RENEW, {"b_worker": worker_id, "b_expires": expires_at, "b_now": tx.now()})


BATCH = 500
FIND = PreparedStatement(select(leases).where(leases.c.token == bindparam("b_token")))
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
# Of a worker's lease only one whose worker has no job: two that ended at once may each have seen the other.
_FORSAKEN = or_(
    leases.c.worker_id.is_(None), ~exists(select(jobs.c.job_id).where(jobs.c.worker_id == leases.c.worker_id))
)


def grant_lease(
    tx: Tx,
    token: str,
    asked: rules.LeaseRequest,
    gpu: rules.Gpu | None,
    *,
    who: str,
    mode: str = "gpu",
    overruled: str | None = None,
) -> rules.Lease:
    """`gpu` is locked. `Duplicate` when the token is taken."""
    row = {
        "token": token,
        "agent_name": asked.agent,
        "expires_at": tx.now() + asked.ttl,
        "reason": Reason.GRANTED.value,
        "actor": who,
        "metadata": dict(asked.metadata),
        "memory_mb": asked.spec.memory_mb,
        "exclusive": int(asked.spec.exclusive),
        "mode": mode,
        "ttl_s": asked.ttl.total_seconds(),
        "overruled": overruled,
    }
    return _to_lease(_insert(tx, gpu, row))


def find_lease(tx: Tx, token: str) -> rules.Lease | None:
    rows = tx.rows(FIND, {"b_token": token})
    return _to_lease(_named(rows[0])) if rows else None


def keep_lease(tx: Tx, lease: rules.Lease) -> datetime | None:
    """Until when it lives now; None when it is over, which a heartbeat does not undo (L2)."""
    assert lease.ttl is not None, "a worker's lease is kept by its claim"
    expires_at = tx.now() + lease.ttl
    kept = tx.run(KEEP, {"b_token": lease.token, "b_now": tx.now(), "b_expires": expires_at})
    return expires_at if kept else None


def end_lease(tx: Tx, token: str, to: LeaseStatus, reason: Reason, who: str, at: datetime | None = None) -> bool:
    """False when it had ended before."""
    moved = {"b_token": token, "b_status": to.value, "b_reason": reason.value, "b_actor": who}
    return tx.run(END, {**moved, "b_now": tx.now(), "b_ended": at or tx.now()}) == 1


def leased_mb(tx: Tx, agent: str) -> int:
    """What an agent has leased, its jobs left aside."""
    theirs = (leases.c.agent_name == agent, leases.c.status == _ACTIVE, leases.c.worker_id.is_(None))
    query = select(func.sum(leases.c.memory_mb)).where(*theirs, leases.c.expires_at > tx.now())
    return int(values(tx, query)[0] or 0)


def expire_leases(tx: Tx, who: str) -> int:
    """Mark the next batch of leases whose time is over."""
    late = (leases.c.status == _ACTIVE, leases.c.expires_at <= tx.now(), _FORSAKEN)
    query = select(leases.c.token, leases.c.expires_at).where(*late).order_by(leases.c.expires_at)
    found = records(tx, query.limit(BATCH).with_for_update(skip_locked=True, of=leases))
    for row in found:
        end_lease(tx, row["token"], LeaseStatus.EXPIRED, Reason.LEASE_EXPIRED, who, row["expires_at"])
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
    leases: tuple[rules.Lease, ...]
    next: str | None


def page_leases(tx: Tx, *, agent: str | None, ended: bool, after: str | None = None, limit: int = 50) -> LeasePage:
    """Newest first; only live ones unless `ended`."""
    check_limit(limit)
    query = select(leases)
    if not ended:
        query = query.where(
            leases.c.status == _ACTIVE, or_(leases.c.worker_id.is_not(None), leases.c.expires_at > tx.now())
        )
    if agent is not None:
        query = query.where(leases.c.agent_name == agent)
    if after is not None:
        query = query.where(beyond(leases.c.created_at, leases.c.token, after))
    query = query.order_by(leases.c.created_at.desc(), leases.c.token.desc()).limit(limit + 1)
    found = [_to_lease(_named(row)) for row in tx.execute(query)]
    last = found[limit - 1] if len(found) > limit else None
    return LeasePage(tuple(found[:limit]), last and cursor(last.created_at, last.token))


def _named(row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(leases.c.keys(), row, strict=True))


def _to_lease(row: Mapping[str, Any]) -> rules.Lease:
    ttl_s = row["ttl_s"]
    return rules.Lease(
        **{field: row[field] for field in _SAME},
        agent=row["agent_name"],
        status=LeaseStatus(row["status"]),
        exclusive=bool(row["exclusive"]),
        ttl=None if ttl_s is None else timedelta(seconds=ttl_s),
        seq=int(row["lease_seq"]),
    )


_SAME = tuple(
    field for field in rules.Lease.__dataclass_fields__ if field in leases.c and field not in ("exclusive", "status")
)
