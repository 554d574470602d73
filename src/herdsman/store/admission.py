"""What decides whether a job may come in: buckets of tokens, gates, and what an agent has waiting and has used."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, bindparam, delete, func, insert, literal, select, update

from herdsman.core.bucket import Bucket
from herdsman.core.gating import LATELY, Closed, Limit, Load, Shut
from herdsman.core.model import PoolId
from herdsman.core.states import JobState
from herdsman.db.connection import Tx
from herdsman.db.schema import buckets, gates, gpus, jobs, usage
from herdsman.db.statements import Hot, one_of

WAITING = (JobState.PENDING, JobState.SCHEDULED, JobState.FAILED)
"""Of an agent: what it has asked for and nobody has begun, a retry included."""

_ONE = literal(1).label("one")


def _counting(query: Select[Any]) -> Hot:
    """A count that goes on for ever would cost more than it tells."""
    return Hot(select(func.count()).select_from(query.limit(bindparam("b_most")).subquery()))


OF_AGENT = _counting(select(_ONE).where(one_of(jobs.c.status, WAITING), jobs.c.agent == bindparam("b_agent")))
IN_POOL = _counting(
    select(_ONE).where(jobs.c.status == JobState.PENDING.value, jobs.c.pool == bindparam("b_pool"))
)
QUEUED = _counting(
    select(_ONE).where(jobs.c.status == JobState.PENDING.value, jobs.c.pool != bindparam("b_but"))
)
OLDEST = Hot(
    select(jobs.c.run_at)
    .where(jobs.c.status == JobState.PENDING.value, jobs.c.pool != bindparam("b_but"))
    .order_by(jobs.c.run_at)
    .limit(1)
)
MEMORY = Hot(
    select(func.sum(gpus.c.used_mb), func.sum(gpus.c.total_mb)).where(
        gpus.c.measured_at > bindparam("b_since")
    )
)
USED = Hot(
    select(usage.c.gpu_seconds).where(
        usage.c.agent == bindparam("b_agent"), usage.c.day == bindparam("b_day")
    )
)
LOCK = Hot(
    lambda listed: (
        select(buckets.c.agent, buckets.c.tokens, buckets.c.filled_at)
        .where(buckets.c.agent.in_(listed))
        # Always in the same order, so that two requests for the same agents cannot wait for each other.
        .order_by(buckets.c.agent)
        .with_for_update()
    )
)
PAY = Hot(
    update(buckets)
    .where(buckets.c.agent == bindparam("b_agent"))
    .values(tokens=bindparam("b_tokens"), filled_at=bindparam("b_filled_at"))
)
SHUT = Hot(
    lambda listed: select(gates.c.name, gates.c.closed_at, gates.c.until, gates.c.detail).where(
        gates.c.name.in_(listed)
    )
)


def lock_buckets(tx: Tx, agents: Iterable[str]) -> dict[str, Bucket]:
    """Whoever has an agent's bucket is the only one who lets in jobs of it. An agent without one is left out."""
    found = tx.rows(LOCK, {}, sorted(set(agents)))
    return {agent: Bucket(tokens=tokens, filled_at=filled_at) for agent, tokens, filled_at in found}


def add_bucket(tx: Tx, agent: str, brim: int) -> None:
    """A full one. `Duplicate` when it is there by now."""
    tx.execute(insert(buckets).values(agent=agent, tokens=float(brim), filled_at=tx.now()))


def put_bucket(tx: Tx, agent: str, bucket: Bucket) -> None:
    tx.run(PAY, {"b_agent": agent, "b_tokens": bucket.tokens, "b_filled_at": bucket.filled_at})


def waiting_of(tx: Tx, agent: str, most: int) -> int:
    """Jobs of the agent that wait, counted as far as `most`."""
    return _count(tx, OF_AGENT, most, b_agent=agent)


def waiting_in(tx: Tx, pool: PoolId, most: int) -> int:
    """Jobs that could be claimed in the pool, counted as far as `most`."""
    return _count(tx, IN_POOL, most, b_pool=pool)


def used(tx: Tx, agent: str) -> float:
    """GPU seconds of this day, as they were last counted."""
    found = tx.rows(USED, {"b_agent": agent, "b_day": day_of(tx.now())})
    return float(found[0][0]) if found else 0.0


def day_of(now: datetime) -> str:
    return now.date().isoformat()


def shut_gates(tx: Tx, names: Sequence[str]) -> dict[str, Shut]:
    """Those of them that are closed."""
    found = tx.rows(SHUT, {}, names)
    return {
        name: Shut(until=until, detail=detail or "")
        for name, closed_at, until, detail in found
        if closed_at is not None
    }


def put_gate(tx: Tx, name: str, shut: Shut | None) -> None:
    """None opens it. `Duplicate` when another has written its first row in this moment."""
    row: dict[str, Any] = {
        "closed_at": None if shut is None else tx.now(),
        "until": None if shut is None else shut.until,
        "detail": None if shut is None else shut.detail[:255],
    }
    if tx.execute(update(gates).where(gates.c.name == name).values(row)).rowcount == 0 and shut is not None:
        tx.execute(insert(gates).values(name=name, **row))


def forget_gates(tx: Tx) -> None:
    """What closed them holds no longer; the next look begins anew."""
    tx.execute(delete(gates))


def queue_gate(agent: str) -> str:
    return f"queued:{agent}"


def look(tx: Tx, limits: Iterable[Limit], *, but: PoolId | None, deepest: int) -> Load:
    """What these gates look at, without the pool `but`; the queue is counted as far as `deepest`."""
    wanted = set(limits)
    memory = _memory(tx) if Limit.GPU_MEMORY in wanted else (0, 0)
    return Load(
        now=tx.now(),
        # No pool has an empty name.
        depth=_count(tx, QUEUED, deepest, b_but=but or "") if Limit.DEPTH in wanted else 0,
        oldest=_oldest(tx, but or "") if Limit.OLDEST in wanted else None,
        gpu_used_mb=memory[0],
        gpu_total_mb=memory[1],
    )


def closed(found: Mapping[str, Shut]) -> Closed:
    return {Limit(name): shut for name, shut in found.items()}


def _count(tx: Tx, hot: Hot, most: int, **named: str) -> int:
    return int(tx.rows(hot, {"b_most": most, **named})[0][0])


def _oldest(tx: Tx, but: str) -> timedelta | None:
    found = tx.rows(OLDEST, {"b_but": but})
    return max(timedelta(0), tx.now() - found[0][0]) if found else None


def _memory(tx: Tx) -> tuple[int, int]:
    used_mb, total_mb = tx.rows(MEMORY, {"b_since": tx.now() - LATELY})[0]
    return int(used_mb or 0), int(total_mb or 0)
