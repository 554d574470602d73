"""Giving jobs to workers: the next in line, one for each worker that is free."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from herdsman.db.connection import Tx, record, records, values
from herdsman.db.schema import concurrency, holds, job_bodies, jobs, worker_models, workers
from herdsman.db.statements import PreparedStatement, in_state
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs.model import Claim, ClaimKey
from herdsman.jobs.protocol import MOST_AT_ONCE
from herdsman.jobs.rules import JobSelector
from herdsman.states import JobStatus, Reason, WorkerStatus
from herdsman.wire import span

TYPE_HOLD = "type:"
_IN_FORCE = sa.or_(holds.c.until.is_(None), holds.c.until > sa.bindparam("b_now", type_=holds.c.until.type))
_POOL_HELD = sa.exists(
    sa.select(holds.c.scope).where(
        sa.or_(holds.c.scope == "all", holds.c.scope == sa.literal("pool:").concat(workers.c.pool)), _IN_FORCE
    )
)
_TYPES_HELD = sa.exists(sa.select(holds.c.scope).where(holds.c.scope.like(f"{TYPE_HOLD}%"), _IN_FORCE))
_FREE = (workers.c.id, workers.c.pool, _TYPES_HELD, workers.c.loaded_at, workers.c.gpu_seen)
FREE_WORKERS = PreparedStatement(
    lambda listed: (
        sa.select(*_FREE)
        .where(
            workers.c.id.in_(listed),
            workers.c.status == WorkerStatus.ACTIVE.value,
            ~sa.exists(sa.select(jobs.c.job_id).where(jobs.c.worker_id == workers.c.id)),
            ~_POOL_HELD,
        )
        # In one order, so that two batches cannot wait for each other; and by age, which ids begin with: those beyond
        # what is needed stay idle, and can be drained.
        .order_by(workers.c.id)
        .with_for_update(key_share=True)
    )
)
ACTIVE_WORKER = PreparedStatement(
    sa.select(*_FREE)
    .where(workers.c.id == sa.bindparam("b_worker"), workers.c.status == WorkerStatus.ACTIVE.value, ~_POOL_HELD)
    .with_for_update(key_share=True)
)
_ITS_CLAIMS = sa.select(sa.func.count()).select_from(jobs).where(jobs.c.worker_id == workers.c.id)
_IN_SLOTS = jobs.c.slot.between(sa.bindparam("b_slot"), sa.bindparam("b_slot", type_=jobs.c.slot.type) + MOST_AT_ONCE)
BUSY_WORKER = PreparedStatement(
    sa.select(*_FREE, _ITS_CLAIMS.scalar_subquery(), _ITS_CLAIMS.where(_IN_SLOTS).scalar_subquery())
    .where(workers.c.id == sa.bindparam("b_worker"), workers.c.status == WorkerStatus.ACTIVE.value, ~_POOL_HELD)
    .with_for_update(key_share=True)
)
LOCK_WORKERS = PreparedStatement(
    lambda listed: (
        sa.select(workers.c.id).where(workers.c.id.in_(listed)).order_by(workers.c.id).with_for_update(key_share=True)
    )
)


class Free(NamedTuple):
    """A worker that may have jobs."""

    worker_id: WorkerId
    pool: PoolId
    types_held: bool
    """Somebody has stopped the jobs of some type."""
    loaded_at: datetime | None
    """When it last changed its model."""
    gpu_seen: int | None
    """0 where it has said that it has no GPU; None where it has said nothing."""


class Waiting(NamedTuple):
    """A job that is about to be claimed; its row is locked."""

    job_id: JobId
    claim_token: int
    type: str
    payload: str
    attempts: int
    timeout_s: float | None
    service_job_id: str | None
    model: str | None
    agent: str
    gpu_memory_mb: int | None
    allow_cpu: int
    concurrency_key: str | None
    place: int
    run_at: datetime
    reason: str
    several: bool = False
    """Jobs of other agents wait in its pool too."""


# Not joined: a plan for any number of rows would read all the bodies.
_PAYLOAD = sa.select(job_bodies.c.payload).where(job_bodies.c.job_id == jobs.c.job_id).scalar_subquery()
_STATE = tuple(jobs.c[field] for field in Waiting._fields if field not in ("several", "payload"))
WAITING = tuple(
    _PAYLOAD.label(field) if field == "payload" else jobs.c[field] for field in Waiting._fields if field != "several"
)
_IN_POOL = (in_state(jobs.c.status, JobStatus.PENDING), jobs.c.pool == sa.bindparam("b_pool"))


def _agent_at(end: Any) -> Any:
    return sa.select(jobs.c.agent).where(*_IN_POOL).order_by(end).limit(1).scalar_subquery()


MOST_LOOKS = 64
"""Types that are each looked for by themselves; a worker that takes more is given the first that fits."""
_Query = sa.Select[Any, *tuple[Any, ...]]
_SEVERAL = (_agent_at(jobs.c.agent) != _agent_at(jobs.c.agent.desc())).label("several")
_WAITING: _Query = sa.select(*WAITING, _SEVERAL).where(*_IN_POOL)


def _next(waiting: _Query) -> _Query:
    return waiting.order_by(jobs.c.place).limit(sa.bindparam("b_limit")).with_for_update(skip_locked=True)


# Only then the index gives them in order: an agent's jobs with models are looked for one model at a time.
_HIS = sa.and_(jobs.c.agent == sa.bindparam("b_agent"), jobs.c.model.is_(None))
NEXT_JOBS = PreparedStatement(_next(_WAITING))


def _next_of_types(listed: Sequence[sa.BindParameter[Any]]) -> _Query:
    """One look into the index for each type: how many jobs of other types wait makes no difference."""
    if len(listed) == 1 or len(listed) > MOST_LOOKS:
        return _next(_WAITING.where(jobs.c.type.in_(listed)))
    looks: list[_Query] = []
    for index, kind in enumerate(listed):
        # A list is filled up with its last entry, which is looked for once.
        again = [kind != listed[index - 1]] if index else []
        one = _next(sa.select(*_STATE).where(*_IN_POOL, jobs.c.type == kind, *again))
        looks.append(sa.select(one.subquery()))
    found = sa.union_all(*looks).subquery()
    payload = sa.select(job_bodies.c.payload).where(job_bodies.c.job_id == found.c.job_id).scalar_subquery()
    columns = (payload if field == "payload" else found.c[field] for field in Waiting._fields if field != "several")
    return sa.select(*columns, _SEVERAL).order_by(found.c.place).limit(sa.bindparam("b_limit"))


NEXT_OF_TYPES = PreparedStatement(_next_of_types)
NEXT_OF_AGENT = PreparedStatement(_next(_WAITING.where(_HIS)))
NEXT_OF_AGENT_TYPES = PreparedStatement(lambda listed: _next(_WAITING.where(_HIS, jobs.c.type.in_(listed))))
HELD_JOBS = PreparedStatement(
    lambda listed: (
        sa.select(*WAITING, jobs.c.worker_id, jobs.c.claim_expires_at)
        .where(
            jobs.c.worker_id.in_(listed),
            # One token, one execution (J11): whoever holds a job that has begun may be at work on it.
            jobs.c.status == JobStatus.CLAIMED.value,
            jobs.c.begun_by.is_(None),
            jobs.c.cancel_requested_at.is_(None),
        )
        .order_by(jobs.c.worker_id, jobs.c.slot)
        .with_for_update()
    )
)
HELD_KEYS = PreparedStatement(
    sa.select(jobs.c.job_id, jobs.c.claim_token)
    .where(
        jobs.c.worker_id == sa.bindparam("b_worker"),
        sa.or_(
            sa.and_(jobs.c.status == JobStatus.CLAIMED.value, jobs.c.begun_by.is_(None)),
            sa.func.coalesce(jobs.c.begun_by, "") == sa.bindparam("b_incarnation"),
        ),
    )
    .order_by(jobs.c.slot)
)
_CLAIM = (
    sa.update(jobs)
    .where(
        jobs.c.job_id == sa.bindparam("b_job"),
        jobs.c.claim_token == sa.bindparam("b_token"),
        jobs.c.status == JobStatus.PENDING.value,
    )
    .values(
        version=jobs.c.version + 1,
        updated_at=sa.bindparam("b_now"),
        actor=sa.bindparam("b_actor"),
        status=JobStatus.CLAIMED.value,
        reason=Reason.CLAIMED.value,
        worker_id=sa.bindparam("b_worker"),
        slot=sa.bindparam("b_slot"),
        last_worker_id=sa.bindparam("b_worker"),
        claim_token=jobs.c.claim_token + 1,
        # Counted at claim, not at failure, so that a worker that dies in silence still uses one up.
        attempts=jobs.c.attempts + 1,
        claim_expires_at=sa.bindparam("b_expires"),
        claimed_at=sa.bindparam("b_now"),
        deadline_at=sa.bindparam("b_deadline"),
        started_at=sa.null(),
        begun_by=sa.null(),
        progress=sa.null(),
        progress_note=sa.null(),
        progress_at=sa.null(),
    )
)


CLAIM = PreparedStatement(_CLAIM)
# Whoever takes a job ahead says only later that it has begun: to all others, it may have (J11).
CLAIM_AHEAD = PreparedStatement(_CLAIM.values(begun_by=sa.bindparam("b_incarnation")))


def next_jobs(tx: Tx, pool: PoolId, limit: int, types: Sequence[str], agent: str | None = None) -> list[Waiting]:
    """The first in line, locked; one locked by another claimer is skipped.

    Without `types` any job will do; with them, jobs of other types go on waiting. Of an agent, only those without models.
    """
    wanted = {"b_pool": pool, "b_limit": limit, "b_agent": agent}
    every, some = (NEXT_JOBS, NEXT_OF_TYPES) if agent is None else (NEXT_OF_AGENT, NEXT_OF_AGENT_TYPES)
    return [
        Waiting(*row)
        for row in (tx.rows(some, wanted, list(dict.fromkeys(types))) if types else tx.rows(every, wanted))
    ]


def claim(
    tx: Tx,
    waiting: Sequence[Waiting],
    slots: Sequence[tuple[WorkerId, int]],
    ttl: timedelta,
    incarnation: str | None = None,
) -> list[Claim]:
    """Gives the jobs to the slots of workers, as far as there are both; `incarnation` takes them ahead."""
    now = tx.now()
    claims = [_claim(job, worker, now + ttl) for job, (worker, _) in zip(waiting, slots, strict=False)]
    if not claims:
        return []
    rows = [
        {
            "b_slot": slot,
            "b_job": claim.key.job_id,
            "b_token": claim.key.token - 1,
            "b_now": now,
            "b_actor": f"worker:{worker}",
            "b_worker": worker,
            **({} if incarnation is None else {"b_incarnation": incarnation}),
            "b_expires": claim.expires_at,
            "b_deadline": now + claim.timeout if claim.timeout else None,
        }
        for claim, (worker, slot) in zip(claims, slots, strict=False)
    ]
    statement = CLAIM if incarnation is None else CLAIM_AHEAD
    assert tx.run_many(statement, rows) == len(claims), "a locked pending job could not be claimed"
    return claims


def held(tx: Tx, asking: Sequence[WorkerId]) -> list[Claim]:
    """What these workers hold and have not begun, as it was given to them."""
    claims: list[Claim] = []
    for *waiting, worker, expires in tx.rows(HELD_JOBS, {}, asking):
        job = Waiting(*waiting)
        before = job._replace(claim_token=job.claim_token - 1, attempts=job.attempts - 1)
        claims.append(_claim(before, WorkerId(worker), expires))
    return claims


def held_keys(tx: Tx, worker: WorkerId, incarnation: str | None) -> list[ClaimKey]:
    """What this worker holds, but for what another incarnation of it has begun."""
    asked = {"b_worker": worker, "b_incarnation": incarnation or ""}
    return [ClaimKey(JobId(job_id), token) for job_id, token in tx.rows(HELD_KEYS, asked)]


def _claim(job: Waiting, worker: WorkerId, expires_at: datetime) -> Claim:
    return Claim(
        key=ClaimKey(JobId(job.job_id), job.claim_token + 1),
        worker_id=worker,
        type=job.type,
        payload=json.loads(job.payload),
        attempt=job.attempts + 1,
        timeout=span(job.timeout_s),
        expires_at=expires_at,
        service_job_id=job.service_job_id,
        model=job.model,
        agent=job.agent,
        place=job.place,
    )


MOST_MODELS = 64
"""So many models that an agent's jobs want are compared; any of these jobs may be given out."""
MOST_AGENTS = 1000
"""So many agents are tried, each of which has a job that may be given out: others may be about to take it."""
LONGEST_KEY = 128


def _behind(*fitting: sa.ColumnElement[bool]) -> _Query:
    behind = sa.select(jobs.c.agent).where(*_IN_POOL, jobs.c.agent > sa.bindparam("b_agent"), *fitting)
    return behind.order_by(jobs.c.agent).limit(1)


AGENT_BEHIND = PreparedStatement(_behind())
AGENT_BEHIND_TYPES = PreparedStatement(lambda listed: _behind(jobs.c.type.in_(listed)))


def agents_behind(tx: Tx, pool: PoolId, last: str, wanted: Callable[[], JobSelector]) -> Iterator[str]:
    """Those who wait in the pool with a job that is `wanted`, in a circle that begins behind `last`.

    What is wanted may become less on the way.
    """
    following, seen = _agent_behind(tx, pool, last, wanted()), set[str]()
    while len(seen) < MOST_AGENTS:
        following = following or _agent_behind(tx, pool, "", wanted())
        if following is None or following in seen:
            return
        seen.add(following)
        yield following
        following = _agent_behind(tx, pool, following, wanted())


def _agent_behind(tx: Tx, pool: PoolId, agent: str, wanted: JobSelector) -> str | None:
    here = {"b_pool": pool, "b_agent": agent}
    if wanted == JobSelector(types=wanted.types):  # the busy path
        types = list(wanted.types)
        found = tx.rows(AGENT_BEHIND_TYPES, here, types) if types else tx.rows(AGENT_BEHIND, here)
    else:
        found = tx.execute(_behind(*_fitting(wanted)), here).all()
    return str(found[0][0]) if found else None


def want_models(tx: Tx, pool: PoolId, agents: Sequence[str], types: Sequence[str]) -> bool:
    """Whether any of their waiting jobs of these types names a model."""
    fitting = _fitting(JobSelector(types=types, only_agents=agents))
    wanting = sa.select(jobs.c.job_id).where(*_IN_POOL, jobs.c.model.is_not(None), *fitting).limit(1)
    return bool(values(tx, wanting.params(b_pool=pool)))


def heads(tx: Tx, pool: PoolId, wanted: JobSelector, agent: str) -> list[Waiting]:
    """An agent's first job without a model, and the first of each model; locked."""
    mine = _waiting(pool, wanted).where(jobs.c.agent == agent)
    first = _first(tx, mine.where(jobs.c.model.is_(None)).order_by(jobs.c.place))
    found = [] if first is None else [first]
    beyond = jobs.c.model.is_not(None)
    for _ in range(MOST_MODELS):
        job = _first(tx, mine.where(beyond).order_by(jobs.c.model, jobs.c.place))
        if job is None:
            return found
        found.append(job)
        beyond = jobs.c.model > job.model
    loaded = list(wanted.loaded.here) if wanted.loaded else []
    job = _first(tx, mine.where(beyond, jobs.c.model.in_(loaded)).order_by(jobs.c.place))
    return found if job is None else [*found, job]


def heads_of_all(tx: Tx, pool: PoolId, wanted: JobSelector) -> list[Waiting]:
    """Of all agents together: the first job that needs no change of models, the first that has waited for its model as
    long as it has to, and the first of a model that nobody has loaded; locked."""
    assert wanted.loaded is not None
    loaded, waiting = wanted.loaded, _waiting(pool, wanted).order_by(jobs.c.place)
    suits = sa.or_(jobs.c.model.is_(None), jobs.c.model.in_(list(loaded.here)))
    looks = [suits, jobs.c.run_at <= wanted.overdue_before, jobs.c.model.not_in(list(loaded.elsewhere))]
    found = [_first(tx, waiting.where(look)) for look in looks]
    return [job for job in found if job is not None]


def _waiting(pool: PoolId, wanted: JobSelector) -> _Query:
    query = sa.select(*WAITING).where(*_IN_POOL, *_fitting(wanted)).params(b_pool=pool)
    return query.limit(1).with_for_update(skip_locked=True)


def _fitting(wanted: JobSelector) -> list[sa.ColumnElement[bool]]:
    """What `JobSelector.accepts` says, in SQL."""
    conditions: list[sa.ColumnElement[bool]] = []
    if wanted.types:
        conditions.append(jobs.c.type.in_(list(wanted.types)))
    if wanted.not_types:
        conditions.append(jobs.c.type.not_in(list(wanted.not_types)))
    if wanted.only_agents is not None:
        conditions.append(jobs.c.agent.in_(list(wanted.only_agents)))
    if wanted.not_agents:
        conditions.append(jobs.c.agent.not_in(list(wanted.not_agents)))
    if wanted.not_keys:
        free = jobs.c.concurrency_key.not_in(list(wanted.not_keys))
        conditions.append(sa.or_(jobs.c.concurrency_key.is_(None), free))
    if wanted.no_gpu:
        conditions.append(sa.or_(jobs.c.gpu_memory_mb.is_(None), jobs.c.allow_cpu == 1))
    if wanted.room_mb is not None:
        conditions.append(jobs.c.gpu_memory_mb <= wanted.room_mb)
    if wanted.loaded is not None and (kept := set(wanted.loaded.elsewhere).difference(wanted.loaded.here)):
        taken: list[sa.ColumnElement[bool]] = [jobs.c.model.is_(None), jobs.c.model.not_in(sorted(kept))]
        if wanted.overdue_before is not None:
            taken.append(jobs.c.run_at <= wanted.overdue_before)
        conditions.append(sa.or_(*taken))
    return conditions


def _first(tx: Tx, query: _Query) -> Waiting | None:
    row = record(tx, query)
    return None if row is None else Waiting(**row)


def loaded_elsewhere(tx: Tx, pool: PoolId, worker: WorkerId | None) -> frozenset[str]:
    """What active workers of the pool have loaded, `worker` left aside."""
    query = (
        sa.select(worker_models.c.model)
        .join(workers, workers.c.id == worker_models.c.worker_id)
        .where(workers.c.pool == pool, workers.c.status == WorkerStatus.ACTIVE.value)
        .distinct()
    )
    others = query if worker is None else query.where(workers.c.id != worker)
    return frozenset(str(model) for model in values(tx, others))


def note_change(tx: Tx, worker: WorkerId, model: str) -> None:
    """It is about to load this: others know at once, and its next beat says what it really has."""
    tx.execute(sa.update(workers).where(workers.c.id == worker).values(loaded_at=tx.now()))
    tx.execute(sa.delete(worker_models).where(worker_models.c.worker_id == worker))
    tx.execute(sa.insert(worker_models).values(worker_id=worker, model=model))


def held_types(tx: Tx) -> frozenset[str]:
    in_force = sa.or_(holds.c.until.is_(None), holds.c.until > tx.now())
    scopes = values(tx, sa.select(holds.c.scope).where(holds.c.scope.like(f"{TYPE_HOLD}%"), in_force))
    return frozenset(str(scope).removeprefix(TYPE_HOLD) for scope in scopes)


def lock_key(tx: Tx, key: str) -> None:
    """Until the end nobody else counts what runs under this key. `Duplicate` when two have made it at once."""
    query = sa.select(concurrency.c.key).where(concurrency.c.key == key).with_for_update()
    if record(tx, query) is None:
        tx.execute(sa.insert(concurrency).values(key=key))


def running_of(tx: Tx, column: Literal["agent", "concurrency_key"], one: str | None = None) -> Mapping[str, int]:
    """How many jobs are held for each agent or under each key, or for `one`; who has none is left out."""
    of = jobs.c[column]
    counted = sa.select(of.label("name"), sa.func.count().label("held")).where(jobs.c.worker_id.is_not(None))
    found = records(tx, counted.where(of.is_not(None) if one is None else of == one).group_by(of))
    return {str(row["name"]): int(row["held"]) for row in found}


def agent_key(agent: str) -> str:
    """What is locked to count an agent's jobs. Names of keys hold no slash: none of them can be taken for it."""
    return f"agent/{agent}"[:LONGEST_KEY]
