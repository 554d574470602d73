"""Which types of jobs workers take, as they said when they asked for work."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import select, update

from herdsman.core.body import clean
from herdsman.core.model import WorkerId
from herdsman.core.states import WORKER
from herdsman.db.connection import Tx, records
from herdsman.db.schema import workers
from herdsman.db.statements import one_of
from herdsman.store.workers import LONGEST_FAULT, METADATA

FIELD = "types"
UNFIT = "unfit"
MOST_TYPES = 200
"""A worker with more is not told apart from one that takes anything: what it says is bounded (X9)."""


def note(tx: Tx, worker_id: WorkerId, types: Sequence[str]) -> None:
    """Kept beside what else is known of the worker. Nothing is written when it is known already."""
    found = tx.rows(METADATA, {"b_id": worker_id})
    known: dict[str, Any] = found[0][0] if found else {}
    said = sorted(types) if len(types) <= MOST_TYPES else []
    if found and known.get(FIELD, []) != said:
        tx.execute(update(workers).where(workers.c.id == worker_id).values(metadata={**known, FIELD: said}))


def note_unfit(tx: Tx, worker_id: WorkerId, unfit: Mapping[str, str]) -> None:
    """Which of them it does not take at the moment, and why."""
    found = tx.rows(METADATA, {"b_id": worker_id})
    known: dict[str, Any] = found[0][0] if found else {}
    said = {kind: clean(why, LONGEST_FAULT) for kind, why in sorted(unfit.items())[:MOST_TYPES]}
    if found and known.get(UNFIT, {}) != said:
        tx.execute(update(workers).where(workers.c.id == worker_id).values(metadata={**known, UNFIT: said}))


def unfit_of(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    return cast("dict[str, str]", metadata.get(UNFIT) or {})


def unfit_of_living(tx: Tx) -> Mapping[str, Mapping[str, str]]:
    """By worker the types that it does not take, and why."""
    query = select(workers.c.id, workers.c.metadata).where(one_of(workers.c.status, WORKER.live))
    found = {row["id"]: unfit_of(row["metadata"]) for row in records(tx, query)}
    return {worker: unfit for worker, unfit in found.items() if unfit}


def of_living(tx: Tx) -> Mapping[str, frozenset[str]]:
    """Of all that live and have named some; who is not in it may take anything."""
    query = select(workers.c.id, workers.c.metadata).where(one_of(workers.c.status, WORKER.live))
    named = {row["id"]: cast("list[str] | None", row["metadata"].get(FIELD)) for row in records(tx, query)}
    return {worker: frozenset(types) for worker, types in named.items() if types}
