"""Rows written past every command, as a person with SQL would; for what the databases guard by themselves."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import insert, update

from herdsman.db.connection import Database, Tx
from herdsman.db.schema import jobs, metadata
from herdsman.states import HELD, JOB, LEASE, POOL, WAITING, WORKER, JobStatus, Machine

HOLDER = "holder"
FILLED: Mapping[str, Mapping[str, Any]] = {
    JOB.kind: {
        "type": "demo",
        "agent": "ann",
        "pool": "default",
        **dict.fromkeys(("place", "attempts", "interruptions"), 0),
        **dict.fromkeys(("worker_losses", "out_of_memory", "claim_token"), 0),
    },
    WORKER.kind: {"pool": "default", "metadata": {}},
    POOL.kind: {"agent_name": "ann", "metadata": {}},
    LEASE.kind: {"agent_name": "ann", "metadata": {}},
}
INSTANTS = {
    JOB.kind: ("run_at", "created_at"),
    WORKER.kind: ("created_at", "entered_state_at"),
    POOL.kind: ("started_at",),
    LEASE.kind: ("created_at", "expires_at"),
}


def add_row(database: Database, machine: Machine[Any], key: str = "x", **values: Any) -> None:
    """A row with all that its table wants; `values` may spoil it."""
    if machine is JOB:
        add_row(database, WORKER, f"{HOLDER}-{key}")
    database.transact(lambda tx: _insert(tx, machine, key, values))


def move_row(database: Database, machine: Machine[Any], to: StrEnum, key: str = "x", **values: Any) -> None:
    """To another state with every other column as that state wants it; `values` may spoil it."""
    database.transact(lambda tx: _update(tx, machine, to, key, values))


def _insert(tx: Tx, machine: Machine[Any], key: str, values: Mapping[str, Any]) -> None:
    now = tx.now()
    usual = {
        **FILLED[machine.kind],
        **dict.fromkeys(INSTANTS[machine.kind], now),
        machine.key: key,
        "status": str(min(machine.initial)),
        "reason": "test",
        "actor": "test",
        "version": 1,
        "updated_at": now,
    }
    tx.execute(insert(metadata.tables[machine.table]).values({**usual, **values}))


def _update(tx: Tx, machine: Machine[Any], to: StrEnum, key: str, values: Mapping[str, Any]) -> None:
    table = metadata.tables[machine.table]
    usual: dict[str, Any] = {"status": str(to), "version": table.c.version + 1, "updated_at": tx.now()}
    if machine is JOB:
        usual |= _job_values(tx, JobStatus(to), key)
    tx.execute(update(table).where(table.c[machine.key] == key).values({**usual, **values}))


def _job_values(tx: Tx, to: JobStatus, key: str) -> dict[str, Any]:
    held = to in HELD
    return {
        "worker_id": f"{HOLDER}-{key}" if held else None,
        "claim_expires_at": tx.now() if held else None,
        **({"last_worker_id": f"{HOLDER}-{key}"} if held else {}),
        "claimed_at": tx.now() if held else None if to in WAITING else jobs.c.claimed_at,
        "finished_at": tx.now() if to in JOB.terminal else None,
        "claim_token": jobs.c.claim_token + (1 if to is JobStatus.CLAIMED else 0),
    }


def row_in_state(database: Database, machine: Machine[Any], state: StrEnum, key: str = "x") -> None:
    """Brought there by legal moves, the shortest way from a beginning."""
    first, *rest = _way(machine, state)
    add_row(database, machine, key, status=str(first))
    for step in rest:
        move_row(database, machine, step, key)


def _way(machine: Machine[Any], to: StrEnum) -> list[StrEnum]:
    ways = [[state] for state in sorted(machine.initial)]
    for way in ways:
        if way[-1] == to:
            return way
        ways.extend([*way, after] for after in sorted(machine.moves[way[-1]]) if after not in way)
    raise AssertionError(f"{to} cannot be reached")
