"""GPUs with everything that counts when they are given out: what is leased on them, and what has just ended."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Select, bindparam, func, select, update

from herdsman.core.leasing import Gpu, Held, Standing
from herdsman.core.model import WorkerId
from herdsman.core.reasons import Reason
from herdsman.core.states import LeaseState
from herdsman.db.connection import Tx
from herdsman.db.schema import gpus, leases
from herdsman.db.statements import MOST_LISTED, Hot, Row

LATELY = timedelta(minutes=1)
MOST_GPUS = 1000
"""The most that a request for a lease looks at; those that had the most free when they were measured."""

_ACTIVE = LeaseState.ACTIVE.value
_COLUMNS = tuple(gpus.c)

BY_NODE = Hot(
    select(*_COLUMNS).where(gpus.c.node_id == bindparam("b_node")).order_by(gpus.c.uuid).limit(MOST_GPUS)
)
ALL = Hot(select(*_COLUMNS).order_by((gpus.c.total_mb - gpus.c.used_mb).desc(), gpus.c.uuid).limit(MOST_GPUS))
LOCKED = Hot(
    lambda listed: (
        # In one order for everybody, so that no two can wait for each other.
        select(*_COLUMNS).where(gpus.c.uuid.in_(listed)).order_by(gpus.c.uuid).with_for_update()
    )
)
FREE = Hot(
    lambda listed: (
        select(*_COLUMNS)
        .where(gpus.c.uuid.in_(listed))
        .order_by(gpus.c.uuid)
        .with_for_update(skip_locked=True)
    )
)
HELD = Hot(
    lambda listed: select(
        leases.c.gpu_uuid,
        leases.c.memory_mb,
        leases.c.exclusive,
        leases.c.worker_id,
        leases.c.expires_at,
    ).where(leases.c.gpu_uuid.in_(listed), leases.c.status == bindparam("b_active", _ACTIVE))
)
ENDED = Hot(
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
OVERDUE = Hot(
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


def look(tx: Tx, node: str | None = None) -> list[Standing]:
    """All that could be given out, as they are now; nobody is kept from taking them meanwhile."""
    rows = tx.rows(ALL, {}) if node is None else tx.rows(BY_NODE, {"b_node": node})
    return standings(tx, [to_gpu(row) for row in rows])


def lock(tx: Tx, uuids: Sequence[str], who: str) -> list[Standing]:
    """The same for these, and nobody else gives them out before this transaction ends (L1).

    A lease that is over by its time is marked as such: its holder may be sending a heartbeat in this moment,
    and only one of the two may win (L2).
    """
    return _locked(tx, uuids, who, LOCKED)


def lock_free(tx: Tx, uuids: Sequence[str], who: str) -> list[Standing]:
    """The same, without those that another gives out in this moment: nobody is waited for."""
    return _locked(tx, uuids, who, FREE)


def _locked(tx: Tx, uuids: Sequence[str], who: str, how: Hot) -> list[Standing]:
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
