"""How long the jobs of each agent held a GPU today."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, delete, insert, text, update

from herdsman.core.model import PoolId
from herdsman.db.connection import Tx, records
from herdsman.db.dialects import PHRASES, Instant
from herdsman.db.schema import usage
from herdsman.store.admission import day_of

KEPT = timedelta(days=31)


def count(tx: Tx, *, but: PoolId | None) -> Mapping[str, float]:
    """Seconds of this day in UTC by agent, without those in the pool `but`. One that runs counts up to now."""
    now = tx.now()
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    began = "CASE WHEN a.claimed_at > :day THEN a.claimed_at ELSE :day END"
    held = PHRASES[tx.dialect].seconds(began, "COALESCE(a.ended_at, :now)")
    query = text(
        f"SELECT j.agent AS agent, SUM({held}) AS seconds FROM job_attempts a"
        " JOIN orchestrator_jobs j ON j.job_id = a.job_id"
        " WHERE (a.ended_at > :day OR a.ended_at IS NULL) AND a.pool <> :but GROUP BY j.agent"
    ).bindparams(
        bindparam("day", day, type_=Instant()), bindparam("now", now, type_=Instant()), but=but or ""
    )
    return {row["agent"]: max(0.0, float(row["seconds"] or 0)) for row in records(tx, query)}


def put(tx: Tx, agent: str, seconds: float) -> None:
    """`Duplicate` when another has written the day's first row in this moment."""
    day, now = day_of(tx.now()), tx.now()
    row: dict[str, Any] = {"gpu_seconds": seconds, "updated_at": now}
    known = update(usage).where(usage.c.agent == agent, usage.c.day == day)
    if tx.execute(known.values(row)).rowcount == 0:
        tx.execute(insert(usage).values(agent=agent, day=day, **row))


def forget(tx: Tx, before: datetime) -> None:
    tx.execute(delete(usage).where(usage.c.day < day_of(before)))
