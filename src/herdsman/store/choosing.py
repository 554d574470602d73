"""What a choice between waiting jobs has to know: whose they are, what they run with, and what stands in their way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, delete, func, insert, or_, select, update

from herdsman.core.model import PoolId, WorkerId
from herdsman.core.placement import JobSelector
from herdsman.core.states import HELD, JobState, WorkerState
from herdsman.db.connection import Tx, record, records, values
from herdsman.db.schema import concurrency, holds, jobs, worker_models, workers
from herdsman.db.statements import Hot
from herdsman.store.claiming import TYPE_HOLD, WAITING, Waiting

MOST_MODELS = 64
"""So many models that an agent's jobs want are compared; any of these jobs may be given out."""
MOST_AGENTS = 1000
"""So many agents are tried, each of which has a job that may be given out: others may be about to take it."""
LONGEST_KEY = 128

_Query = Select[Any, *tuple[Any, ...]]


def _behind(*fitting: ColumnElement[bool]) -> _Query:
    return (
        select(jobs.c.agent)
        .where(
            jobs.c.status == JobState.PENDING.value,
            jobs.c.pool == bindparam("b_pool"),
            jobs.c.agent > bindparam("b_agent"),
            *fitting,
        )
        .order_by(jobs.c.agent)
        .limit(1)
    )


AGENT_BEHIND = Hot(_behind())
AGENT_BEHIND_TYPES = Hot(lambda listed: _behind(jobs.c.type.in_(listed)))


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
    waiting = (jobs.c.status == JobState.PENDING.value, jobs.c.pool == pool)
    wanting = select(jobs.c.job_id).where(
        *waiting, jobs.c.agent.in_(agents), jobs.c.model.is_not(None), *_fitting(JobSelector(types=types))
    )
    return bool(values(tx, wanting.limit(1)))


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
    suits = or_(jobs.c.model.is_(None), jobs.c.model.in_(list(loaded.here)))
    looks = [suits, jobs.c.run_at <= wanted.overdue_before, jobs.c.model.not_in(list(loaded.elsewhere))]
    found = [_first(tx, waiting.where(look)) for look in looks]
    return [job for job in found if job is not None]


def _waiting(pool: PoolId, wanted: JobSelector) -> _Query:
    query = select(*WAITING).where(
        jobs.c.status == JobState.PENDING.value, jobs.c.pool == pool, *_fitting(wanted)
    )
    return query.limit(1).with_for_update(skip_locked=True)


def _fitting(wanted: JobSelector) -> list[ColumnElement[bool]]:
    """What `JobSelector.accepts` says, in SQL."""
    conditions: list[ColumnElement[bool]] = []
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
        conditions.append(or_(jobs.c.concurrency_key.is_(None), free))
    if wanted.no_gpu:
        conditions.append(or_(jobs.c.gpu_memory_mb.is_(None), jobs.c.allow_cpu == 1))
    if wanted.room_mb is not None:
        conditions.append(jobs.c.gpu_memory_mb <= wanted.room_mb)
    if wanted.loaded is not None and (kept := set(wanted.loaded.elsewhere).difference(wanted.loaded.here)):
        taken: list[ColumnElement[bool]] = [jobs.c.model.is_(None), jobs.c.model.not_in(sorted(kept))]
        if wanted.overdue_before is not None:
            taken.append(jobs.c.run_at <= wanted.overdue_before)
        conditions.append(or_(*taken))
    return conditions


def _first(tx: Tx, query: _Query) -> Waiting | None:
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
    return _running(tx, jobs.c.concurrency_key, key).get(key, 0)


def running_of_agent(tx: Tx, agent: str) -> int:
    return _running(tx, jobs.c.agent, agent).get(agent, 0)


def running_of_keys(tx: Tx) -> Mapping[str, int]:
    """Of each concurrency key that any job is held under."""
    return _running(tx, jobs.c.concurrency_key)


def running_of_agents(tx: Tx) -> Mapping[str, int]:
    """Of each agent that has any."""
    return _running(tx, jobs.c.agent)


def _running(tx: Tx, column: ColumnElement[str], one: str | None = None) -> Mapping[str, int]:
    states = [state.value for state in HELD]
    counted = select(column.label("name"), func.count().label("held")).where(jobs.c.status.in_(states))
    only = column.is_not(None) if one is None else column == one
    found = records(tx, counted.where(only).group_by(column))
    return {str(row["name"]): int(row["held"]) for row in found}


def agent_key(agent: str) -> str:
    """What is locked to count an agent's jobs. Names of keys hold no slash: none of them can be taken for it."""
    return f"agent/{agent}"[:LONGEST_KEY]
