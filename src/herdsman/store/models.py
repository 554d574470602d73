"""What workers have loaded, and what they are told to load."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from sqlalchemy import bindparam, delete, insert, select, update

from herdsman.core.body import clean
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import PoolId, WorkerId
from herdsman.core.pools import OPEN
from herdsman.core.work import Load
from herdsman.db.connection import Tx, records
from herdsman.db.schema import pools, worker_models, workers
from herdsman.db.statements import Hot, Row, one_of
from herdsman.store.pool_rules import read_rules
from herdsman.store.workers import METADATA

MOST_MODELS = 64
LONGEST_MODEL = 255
LONGEST_TROUBLE = 500
HIGHEST_REVISION = 2**31 - 1

KNOWN = Hot(select(worker_models.c.model).where(worker_models.c.worker_id == bindparam("b_worker")))
ADD = Hot(
    insert(worker_models).values(worker_id=bindparam("b_worker"), model=bindparam("b_model")),
    columns=("worker_id", "model"),
)
REMOVE = Hot(
    delete(worker_models).where(
        worker_models.c.worker_id == bindparam("b_worker"), worker_models.c.model == bindparam("b_model")
    )
)
SERVES = Hot(
    update(workers)
    .where(workers.c.id == bindparam("b_worker"), workers.c.revision != bindparam("b_revision"))
    .values(revision=bindparam("b_revision"), loaded_at=bindparam("b_now"))
)
OFFER = Hot(
    update(workers)
    .where(workers.c.id == bindparam("b_worker"), workers.c.wanted_revision < bindparam("b_revision"))
    .values(wanted_revision=bindparam("b_revision"))
)
_LOADED = (pools.c.revision, pools.c.model_id, pools.c.adapter, pools.c.variant, pools.c.rules)
BEHIND = Hot(
    select(*_LOADED)
    .join(workers, workers.c.pool == pools.c.pool_id)
    .where(workers.c.id == bindparam("b_worker"), workers.c.wanted_revision > workers.c.revision)
)
SERVED = Hot(select(*_LOADED).where(pools.c.pool_id == bindparam("b_pool")))


def note_models(
    tx: Tx,
    worker_id: WorkerId,
    models: Iterable[str] | None,
    revision: int | None,
    trouble: str | None = None,
) -> None:
    """What a worker says of itself, bounded (X9). Nothing is written when it is known already."""
    if models is not None:
        _note_loaded(tx, worker_id, {clean(each, LONGEST_MODEL) for each in list(models)[:MOST_MODELS]})
    if revision is not None and 0 <= revision <= HIGHEST_REVISION:
        tx.run(SERVES, {"b_worker": worker_id, "b_revision": revision, "b_now": tx.now()})
    if trouble is not None:
        _note_trouble(tx, worker_id, clean(trouble, LONGEST_TROUBLE))


def load_order(tx: Tx, worker_id: WorkerId) -> Load | None:
    """What the worker has to load now; None when it serves what it was told to, or was told nothing."""
    found = tx.rows(BEHIND, {"b_worker": worker_id})
    return _to_load(found[0]) if found else None


def served_by(tx: Tx, pool: PoolId) -> Load | None:
    """What a new worker of the pool begins with; None for a pool of the settings."""
    found = tx.rows(SERVED, {"b_pool": pool})
    return _to_load(found[0]) if found else None


def offer(tx: Tx, worker_id: WorkerId, revision: int) -> None:
    tx.run(OFFER, {"b_worker": worker_id, "b_revision": revision})


def forget(tx: Tx, worker_id: WorkerId) -> None:
    """It is gone, and so is all that it had loaded."""
    tx.execute(delete(worker_models).where(worker_models.c.worker_id == worker_id))


def require_known(tx: Tx, wanted: AbstractSet[str]) -> None:
    """Refuse a model that no open pool is for and no living worker has loaded: it may be misspelt."""
    if not wanted:
        return
    loaded = select(worker_models.c.model).where(worker_models.c.model.in_(sorted(wanted))).distinct()
    unknown = wanted - {row["model"] for row in records(tx, loaded)}
    if not unknown:
        return
    named = select(pools.c.model_id, pools.c.rules).where(one_of(pools.c.status, OPEN))
    for pool in records(tx, named):
        unknown -= {pool["model_id"], *read_rules(pool["rules"] or {}).preload}
    if unknown:
        raise InvalidRequest(
            f"the model {min(unknown)!r} is named by no open pool and loaded by no worker, and STRICT_MODEL_STORE is set:"
            " create a pool that serves or preloads it, or correct the name"
        )


def _note_loaded(tx: Tx, worker_id: WorkerId, loaded: set[str]) -> None:
    known = {model for (model,) in tx.rows(KNOWN, {"b_worker": worker_id})}
    for model in sorted(known - loaded):
        tx.run(REMOVE, {"b_worker": worker_id, "b_model": model})
    for model in sorted(loaded - known):
        tx.run(ADD, {"b_worker": worker_id, "b_model": model})


def _note_trouble(tx: Tx, worker_id: WorkerId, trouble: str) -> None:
    """Kept beside what else is known of the worker, for whoever asks why a swap does not get on."""
    ((known,),) = tx.rows(METADATA, {"b_id": worker_id})
    if known.get("load_trouble") != trouble:
        changed = {**known, "load_trouble": trouble}
        tx.execute(update(workers).where(workers.c.id == worker_id).values(metadata=changed))


def _to_load(row: Row) -> Load:
    revision, model, adapter, variant, rules = row
    return Load(
        revision=revision,
        model=model,
        adapter=adapter,
        variant=variant,
        preload=read_rules(rules or {}).preload,
    )
