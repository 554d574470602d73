"""What a choice between waiting jobs has to know: whose they are, what they run with, and what stands in their way."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, delete, func, insert, or_, select, update

from herdsman.core.model import PoolId, WorkerId
from herdsman.core.states import HELD, JobState, WorkerState
from herdsman.store.claiming import TYPE_HOLD, WAITING, Waiting
from herdsman.store.database import Tx
from herdsman.store.hot import Hot
from herdsman.store.reading import record, values
from herdsman.store.schema import jobs, workers
from herdsman.store.schema_resources import concurrency, holds, worker_models

MOST_MODELS = 64
AGENT_BEHIND = Hot(
    select(jobs.c.agent)
    .where(
        jobs.c.status == JobState.PENDING.value,
        jobs.c.pool == bindparam("b_pool"),
        jobs.c.agent > bindparam("b_agent"),
    )
    .order_by(jobs.c.agent)
    .limit(1)
)
MOST_AGENTS = 1000
LONGEST_KEY = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a worker could take."""

    pool: PoolId
    types: Sequence[str]
    room_mb: int | None = None
    """It has only so much of a GPU; None when nothing narrows it."""
    not_types: Collection[str] = ()
    not_keys: Collection[str] = ()


def agents_behind(tx: Tx, pool: PoolId, last: str) -> Iterator[str]:
    """Those who wait in the pool, in a circle that begins behind `last`; one look into the index for each."""
    following, seen = _agent_behind(tx, pool, last), set[str]()
    while len(seen) < MOST_AGENTS:
        following = following or _agent_behind(tx, pool, "")
        if following is None or following in seen:
            return
        seen.add(following)
        yield following
        following = _agent_behind(tx, pool, following)


def _agent_behind(tx: Tx, pool: PoolId, agent: str) -> str | None:
    found = tx.rows(AGENT_BEHIND, {"b_pool": pool, "b_agent": agent})
    return str(found[0][0]) if found else None


def want_models(tx: Tx, pool: PoolId, agents: Sequence[str]) -> bool:
    """Whether any of their waiting jobs names a model."""
    waiting = (jobs.c.status == JobState.PENDING.value, jobs.c.pool == pool)
    wanting = select(jobs.c.job_id).where(*waiting, jobs.c.agent.in_(agents), jobs.c.model.is_not(None))
    return bool(values(tx, wanting.limit(1)))


def heads(tx: Tx, wish: Wish, agent: str) -> list[Waiting]:
    """An agent's first job without a model, and the first of each model; locked."""
    mine = _of(wish, agent)
    first = _first(tx, mine.where(jobs.c.model.is_(None)).order_by(jobs.c.place))
    found = [] if first is None else [first]
    beyond = jobs.c.model.is_not(None)
    for _ in range(MOST_MODELS):
        job = _first(tx, mine.where(beyond).order_by(jobs.c.model, jobs.c.place))
        if job is None:
            break
        found.append(job)
        beyond = jobs.c.model > job.model
    return found


def _of(wish: Wish, agent: str) -> Select[Any, *tuple[Any, ...]]:
    query = select(*WAITING).where(
        jobs.c.status == JobState.PENDING.value,
        jobs.c.pool == wish.pool,
        jobs.c.agent == agent,
        *_narrowed(wish),
    )
    return query.limit(1).with_for_update(skip_locked=True)


def _narrowed(wish: Wish) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wish.types:
        conditions.append(jobs.c.type.in_(wish.types))
    if wish.not_types:
        conditions.append(jobs.c.type.not_in(wish.not_types))
    if wish.not_keys:
        free = jobs.c.concurrency_key.not_in(wish.not_keys)
        conditions.append(or_(jobs.c.concurrency_key.is_(None), free))
    if wish.room_mb is not None:
        conditions.append(jobs.c.gpu_memory_mb <= wish.room_mb)
    return conditions


def _first(tx: Tx, query: Select[Any, *tuple[Any, ...]]) -> Waiting | None:
    row = record(tx, query)
    return None if row is None else Waiting(**row)


def loaded_elsewhere(tx: Tx, pool: PoolId, worker: WorkerId | None) -> frozenset[str]:
    """What active workers of the pool have loaded, `worker` left aside."""
    query = (
        select(worker_models.c.model)
        .join(workers, workers.c.id == worker_models.c.worker_id)
        .where(workers.c.pool == pool, workers.c.status == WorkerState.ACTIVE.value)
        .distinct()
    )
    others = query if worker is None else query.where(workers.c.id != worker)
    return frozenset(str(model) for model in values(tx, others))


def note_change(tx: Tx, worker: WorkerId, model: str) -> None:
    """It is about to load this: others know at once, and its next beat says what it really has."""
    tx.execute(update(workers).where(workers.c.id == worker).values(loaded_at=tx.now()))
    tx.execute(delete(worker_models).where(worker_models.c.worker_id == worker))
    tx.execute(insert(worker_models).values(worker_id=worker, model=model))


def held_types(tx: Tx) -> frozenset[str]:
    in_force = or_(holds.c.until.is_(None), holds.c.until > tx.now())
    scopes = values(tx, select(holds.c.scope).where(holds.c.scope.like(f"{TYPE_HOLD}%"), in_force))
    return frozenset(str(scope).removeprefix(TYPE_HOLD) for scope in scopes)


def lock_key(tx: Tx, key: str) -> None:
    """Until the end nobody else counts what runs under this key. `Duplicate` when two have made it at once."""
    query = select(concurrency.c.key).where(concurrency.c.key == key).with_for_update()
    if record(tx, query) is None:
        tx.execute(insert(concurrency).values(key=key))


def running_of_key(tx: Tx, key: str) -> int:
    return _running(tx, jobs.c.concurrency_key == key)


def running_of_agent(tx: Tx, agent: str) -> int:
    return _running(tx, jobs.c.agent == agent)


def _running(tx: Tx, whose: ColumnElement[bool]) -> int:
    states = [state.value for state in HELD]
    query = select(func.count()).select_from(jobs).where(jobs.c.status.in_(states), whose)
    return int(values(tx, query)[0])


def agent_key(agent: str) -> str:
    """What is locked to count an agent's jobs. Names of keys hold no slash: none of them can be taken for it."""
    return f"agent/{agent}"[:LONGEST_KEY]
