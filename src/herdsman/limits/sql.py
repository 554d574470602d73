"""Limits in SQL: token buckets, gates, what agents have waiting and have used; pauses; versions of the policy."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, bindparam, delete, func, insert, literal, or_, select, text, update

from herdsman.db.connection import Tx, record, records, values
from herdsman.db.dialects import Instant, seconds_between
from herdsman.db.schema import audit_entries, buckets, gates, gpus, holds, jobs, policies, usage
from herdsman.db.statements import PreparedStatement, Row, in_state
from herdsman.errors import NotFound
from herdsman.ids import PoolId
from herdsman.limits.rules import ALL, LATELY, Bucket, ClosedGate, Limit, Load, Pause, PauseKind, Pauses
from herdsman.states import WAITING, JobStatus, Reason

_ONE = literal(1).label("one")


def _counting(query: Select[Any]) -> PreparedStatement:
    """A count that goes on for ever would cost more than it tells."""
    return PreparedStatement(select(func.count()).select_from(query.limit(bindparam("b_most")).subquery()))


OF_AGENT = _counting(select(_ONE).where(in_state(jobs.c.status, *WAITING), jobs.c.agent == bindparam("b_agent")))
IN_POOL = _counting(select(_ONE).where(in_state(jobs.c.status, JobStatus.PENDING), jobs.c.pool == bindparam("b_pool")))
QUEUED = _counting(select(_ONE).where(in_state(jobs.c.status, JobStatus.PENDING), jobs.c.pool != bindparam("b_but")))
USED = PreparedStatement(
    select(usage.c.gpu_seconds).where(usage.c.agent == bindparam("b_agent"), usage.c.day == bindparam("b_day"))
)
LOCK = PreparedStatement(
    lambda listed: (
        select(buckets.c.agent, buckets.c.tokens, buckets.c.filled_at)
        .where(buckets.c.agent.in_(listed))
        # Always in the same order, so that two requests for the same agents cannot wait for each other.
        .order_by(buckets.c.agent)
        .with_for_update()
    )
)
PAY = PreparedStatement(
    update(buckets)
    .where(buckets.c.agent == bindparam("b_agent"))
    .values(tokens=bindparam("b_tokens"), filled_at=bindparam("b_filled_at"))
)
SHUT = PreparedStatement(
    lambda listed: select(gates.c.name, gates.c.closed_at, gates.c.until, gates.c.detail).where(
        gates.c.name.in_(listed)
    )
)


def lock_buckets(tx: Tx, agents: Iterable[str]) -> dict[str, Bucket]:
    """Whoever has an agent's bucket is the only one who lets in jobs of it. An agent without one is left out."""
    found = tx.rows(LOCK, {}, sorted(set(agents)))
    return {agent: Bucket(tokens=tokens, filled_at=filled_at) for agent, tokens, filled_at in found}


def add_bucket(tx: Tx, agent: str, capacity: int) -> None:
    """A full one. `Duplicate` when it is there by now."""
    tx.execute(insert(buckets).values(agent=agent, tokens=float(capacity), filled_at=tx.now()))


def put_bucket(tx: Tx, agent: str, bucket: Bucket) -> None:
    tx.run(PAY, {"b_agent": agent, "b_tokens": bucket.tokens, "b_filled_at": bucket.filled_at})


def waiting_of(tx: Tx, agent: str, most: int) -> int:
    """Jobs of the agent that wait, counted as far as `most`."""
    return _count(tx, OF_AGENT, most, b_agent=agent)


def waiting_in(tx: Tx, pool: PoolId, most: int) -> int:
    """Jobs that could be claimed in the pool, counted as far as `most`."""
    return _count(tx, IN_POOL, most, b_pool=pool)


def used_today(tx: Tx, agent: str) -> float:
    """GPU seconds of this day, as they were last counted."""
    found = tx.rows(USED, {"b_agent": agent, "b_day": day_of(tx.now())})
    return float(found[0][0]) if found else 0.0


def day_of(now: datetime) -> str:
    return now.date().isoformat()


def read_closed_gates(tx: Tx, names: Sequence[str]) -> dict[str, ClosedGate]:
    """Those of them that are closed."""
    found = tx.rows(SHUT, {}, names)
    return {
        name: ClosedGate(until=until, detail=detail or "")
        for name, closed_at, until, detail in found
        if closed_at is not None
    }


def put_gate(tx: Tx, name: str, shut: ClosedGate | None) -> None:
    """None opens it. `Duplicate` when another has written its first row in this moment."""
    row: dict[str, Any] = {
        "closed_at": None if shut is None else tx.now(),
        "until": None if shut is None else shut.until,
        "detail": None if shut is None else shut.detail[:255],
    }
    if tx.execute(update(gates).where(gates.c.name == name).values(row)).rowcount == 0 and shut is not None:
        tx.execute(insert(gates).values(name=name, **row))


def forget_gates(tx: Tx) -> None:
    """What closed them holds no longer; the next reading begins anew."""
    tx.execute(delete(gates))


def queue_gate(agent: str) -> str:
    return f"queued:{agent}"


def read_load(tx: Tx, limits: Iterable[Limit], *, but: PoolId | None, deepest: int) -> Load:
    """What these gates depend on, without the pool `but`; the queue is counted as far as `deepest`."""
    wanted, other = set(limits), but or ""  # no pool has an empty name
    waits = (in_state(jobs.c.status, JobStatus.PENDING), jobs.c.pool != other)
    first = select(jobs.c.run_at).where(*waits).order_by(jobs.c.run_at).limit(1)
    oldest = values(tx, first) if Limit.OLDEST in wanted else []
    memory = None
    if Limit.GPU_MEMORY in wanted:
        sums = select(func.sum(gpus.c.used_mb).label("used"), func.sum(gpus.c.total_mb).label("total"))
        memory = record(tx, sums.where(gpus.c.measured_at > tx.now() - LATELY))
    return Load(
        now=tx.now(),
        depth=_count(tx, QUEUED, deepest, b_but=other) if Limit.DEPTH in wanted else 0,
        oldest=max(timedelta(0), tx.now() - oldest[0]) if oldest else None,
        gpu_used_mb=0 if memory is None else int(memory["used"] or 0),
        gpu_total_mb=0 if memory is None else int(memory["total"] or 0),
    )


def _count(tx: Tx, hot: PreparedStatement, most: int, **named: str) -> int:
    return int(tx.rows(hot, {"b_most": most, **named})[0][0])


HOLD = "hold"
LIFTED = "lifted"
MOST_LISTED = 1000
_BATCH = 500
_COLUMNS = (holds.c.scope, holds.c.kind, holds.c.reason, holds.c.actor, holds.c.since, holds.c.until)
ACTIVE = PreparedStatement(
    select(*_COLUMNS)
    .where(holds.c.kind != LIFTED, or_(holds.c.until.is_(None), holds.c.until > bindparam("b_now")))
    .order_by(holds.c.scope)
    .limit(MOST_LISTED)
)


def active_pauses(tx: Tx) -> Pauses:
    return Pauses(tuple(_to_pause(row) for row in tx.rows(ACTIVE, {"b_now": tx.now()})))


def put_pause(tx: Tx, scope: str, kind: PauseKind, why: str, actor: str, until: datetime | None) -> Pause:
    """Pause it, or change the pause. The same again changes nothing; a pause does not undo a drain.

    `Duplicate` when two meet on the first pause of this scope: the second try finds the row.
    """
    wanted = Pause(scope=scope, kind=kind, reason=why, actor=actor, since=tx.now(), until=until)
    known, current = _lock(tx, scope)
    if current is not None and _over(current, tx.now()):
        current = None
    if current is not None and (
        (current.kind is PauseKind.DRAIN and wanted.kind is PauseKind.PAUSE and wanted.scope == ALL)
        or ((current.kind, current.reason, current.until) == (wanted.kind, wanted.reason, wanted.until))
    ):
        return current
    row = {**asdict(wanted), "kind": kind.value}
    if known:
        tx.execute(update(holds).where(holds.c.scope == scope).values(row))
    else:
        tx.execute(insert(holds).values(row))
    _record(tx, wanted, kind, Reason.DRAINED if kind is PauseKind.DRAIN else Reason.PAUSED, actor)
    return wanted


def lift_pause(tx: Tx, scope: str, actor: str) -> bool:
    """Whether there was a pause to lift."""
    _, found = _lock(tx, scope)
    if found is None:
        return False
    over = _over(found, tx.now())
    tx.execute(update(holds).where(holds.c.scope == scope).values(kind=LIFTED, until=holds.c.since))
    _record(tx, found, LIFTED, Reason.TIME_OVER if over else Reason.RESUMED, actor)
    return not over


def _lock(tx: Tx, scope: str) -> tuple[bool, Pause | None]:
    """Whether the scope has a row, and its pause, unless it was lifted."""
    row = record(tx, select(*_COLUMNS).where(holds.c.scope == scope).with_for_update())
    paused = row is not None and row["kind"] != LIFTED
    return row is not None, _to_pause(tuple(row.values())) if row is not None and paused else None


def lift_expired_pauses(tx: Tx, actor: str) -> int:
    """Lift the next batch of pauses whose time is over."""
    over = select(holds.c.scope).where(holds.c.until <= tx.now(), holds.c.kind != LIFTED)
    found = values(tx, over.order_by(holds.c.scope).limit(_BATCH).with_for_update(skip_locked=True))
    for scope in found:
        lift_pause(tx, scope, actor)
    return len(found)


def _record(tx: Tx, pause: Pause, after: str, reason: Reason, actor: str) -> None:
    """Numbered without gaps: two that count at the same time meet on the number, and one begins again."""
    mine = (audit_entries.c.kind == HOLD, audit_entries.c.object_id == pause.scope)
    (last,) = values(tx, select(func.max(audit_entries.c.seq)).where(*mine))
    tx.execute(
        insert(audit_entries).values(
            ts=tx.now(),
            kind=HOLD,
            object_id=pause.scope,
            seq=(last or 0) + 1,
            status=after,
            reason=reason.value,
            actor=actor,
            details={"reason": pause.reason, "until": None if pause.until is None else pause.until.isoformat()},
        )
    )


def _over(pause: Pause, now: datetime) -> bool:
    return pause.until is not None and pause.until <= now


def _to_pause(row: Row) -> Pause:
    scope, kind, why, actor, since, until = row
    return Pause(scope=scope, kind=PauseKind(kind), reason=why, actor=actor, since=since, until=until)


POLICY = "policy"
"""In the audit: the kind of thing, and the name of the only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    version: int
    document: str
    note: str
    actor: str
    created_at: datetime


def newest_policy(tx: Tx) -> int:
    """0 before anybody has set anything."""
    return int(tx.execute(select(func.max(policies.c.version))).scalar_one() or 0)


def get_policy(tx: Tx, version: int) -> Edition:
    found = _editions(tx, first=version, limit=1)
    if not found or found[0].version != version:
        raise NotFound(f"there is no version {version} of the policy")
    return found[0]


def page_policies(tx: Tx, *, after: int | None, limit: int) -> list[Edition]:
    """Newest first."""
    return _editions(tx, first=None if after is None else after - 1, limit=limit)


def add_policy(tx: Tx, edition: Edition, details: dict[str, object]) -> None:
    """`Duplicate` when somebody else has made this version in the meantime."""
    tx.execute(insert(policies).values(asdict(edition)))
    tx.execute(
        insert(audit_entries).values(
            ts=edition.created_at,
            kind=POLICY,
            object_id=POLICY,
            seq=edition.version,
            status=Reason.CHANGED.value,
            reason=Reason.CHANGED.value,
            actor=edition.actor,
            details=details,
        )
    )


def _editions(tx: Tx, *, first: int | None, limit: int) -> list[Edition]:
    query = select(policies).order_by(policies.c.version.desc()).limit(limit)
    if first is not None:
        query = query.where(policies.c.version <= first)
    names = Edition.__dataclass_fields__
    return [Edition(**{name: row[name] for name in names}) for row in records(tx, query)]


KEPT = timedelta(days=31)


def count_usage(tx: Tx, *, but: PoolId | None) -> Mapping[str, float]:
    """Seconds of this day in UTC by agent, without those in the pool `but`. One that runs counts up to now."""
    now = tx.now()
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    # A job that was taken ahead used nothing before it began, and nothing at all where it never did.
    began = (
        "CASE WHEN COALESCE(a.started_at, a.claimed_at) > :day THEN COALESCE(a.started_at, a.claimed_at) ELSE :day END"
    )
    held = seconds_between(tx.dialect, began, "COALESCE(a.ended_at, :now)")
    last = (
        "SELECT agent, claimed_at, started_at, finished_at AS ended_at FROM job_states"
        " WHERE pool <> :but AND claimed_at IS NOT NULL"
    )
    query = text(
        f"SELECT a.agent AS agent, SUM({held}) AS seconds FROM ({last} AND finished_at > :day"
        f" UNION ALL {last} AND worker_id IS NOT NULL"
        " UNION ALL SELECT j.agent, p.claimed_at, p.started_at, p.ended_at"
        " FROM past_attempts p JOIN job_states j ON j.job_id = p.job_id"
        f" WHERE p.ended_at > :day AND p.pool <> :but AND p.reason <> '{Reason.NOT_BEGUN}') a GROUP BY a.agent"
    ).bindparams(bindparam("day", day, type_=Instant()), bindparam("now", now, type_=Instant()), but=but or "")
    return {row["agent"]: max(0.0, float(row["seconds"] or 0)) for row in records(tx, query)}


def put_usage(tx: Tx, agent: str, seconds: float) -> None:
    """`Duplicate` when another has written the day's first row in this moment."""
    day, now = day_of(tx.now()), tx.now()
    row: dict[str, Any] = {"gpu_seconds": seconds, "updated_at": now}
    known = update(usage).where(usage.c.agent == agent, usage.c.day == day)
    if tx.execute(known.values(row)).rowcount == 0:
        tx.execute(insert(usage).values(agent=agent, day=day, **row))


def forget_usage(tx: Tx, before: datetime) -> None:
    tx.execute(delete(usage).where(usage.c.day < day_of(before)))
