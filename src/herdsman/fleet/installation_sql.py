"""The identity of this database, the numbers that it has given out, and where it is."""

import socket
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from sqlalchemy import func, insert, select, text, update

from herdsman.db.connection import Tx, record, values
from herdsman.db.schema import installation, jobs, leader
from herdsman.db.statements import in_state
from herdsman.fleet.model import LEAP, Installation, Place, Stamp
from herdsman.jobs.model import ClaimKey
from herdsman.states import JOB, WAITING

NAME = "installation"
TOKENS_AT_ONCE = 1000
_MACHINE = Path("/etc/machine-id")
_OPEN = [state.value for state in JOB.live]


def find(tx: Tx) -> Installation | None:
    """None before its first use by a leader."""
    row = record(tx, select(installation).where(installation.c.name == NAME))
    if row is None:
        return None
    orphans: Mapping[str, str] = row["orphans"] or {}
    return Installation(
        id=row["id"],
        spawned=row["spawned"],
        place=row["place"],
        orphans={ref: datetime.fromisoformat(since) for ref, since in orphans.items()},
        held=row["held"] or "",
        hint=row["hint"] or "",
        raised=row["raised_at"] is not None,
    )


def make(tx: Tx, new_id: str, place: Place) -> Installation:
    tx.execute(
        insert(installation).values(
            name=NAME, id=new_id, spawned=0, first_token=0, place=dict(place), created_at=tx.now(), orphans={}
        )
    )
    return Installation(id=new_id, place=place)


def next_stamp(tx: Tx) -> Stamp:
    """For one more instance; a number is given out once, also by two that ask at the same time."""
    _change(tx, spawned=installation.c.spawned + 1)
    row = record(tx, select(installation.c.id, installation.c.spawned).where(installation.c.name == NAME))
    assert row is not None, "an instance is asked for before anybody has looked at the fleet"
    return Stamp(row["id"], row["spawned"])


def note_orphans(tx: Tx, orphans: Mapping[str, datetime]) -> None:
    _change(tx, orphans={ref: since.isoformat() for ref, since in orphans.items()})


def hold(tx: Tx, why: str) -> None:
    """It went back in time; the first thing that showed it is kept."""
    tx.execute(
        update(installation)
        .where(installation.c.name == NAME, installation.c.held.is_(None))
        .values(held=why, raised_at=None)
    )


def hint(tx: Tx, said: str) -> None:
    """Something that a worker knows and this database does not; the first is kept until a person adopts it."""
    mine = (installation.c.name == NAME, installation.c.hint.is_(None))
    tx.execute(update(installation).where(*mine).values(hint=said))


def adopt(tx: Tx, place: Place) -> None:
    """A person says that this one goes on, here."""
    _change(tx, place=dict(place), held=None, hint=None, raised_at=None, orphans={})


def raise_numbers(tx: Tx, highest: int) -> None:
    """Starts and epochs leap over whatever was given out by a later state of this database."""
    row = record(tx, select(installation.c.spawned).where(installation.c.name == NAME).with_for_update())
    assert row is not None
    _change(tx, spawned=max(row["spawned"], highest) + LEAP, raised_at=tx.now())
    tx.execute(update(leader).values(epoch=leader.c.epoch + LEAP))


def highest_token(tx: Tx) -> int:
    return values(tx, select(func.max(jobs.c.claim_token)).where(jobs.c.status.in_(_OPEN)))[0] or 0


def raise_tokens(tx: Tx, least: int) -> int:
    """Some of the jobs that wait get a claim token above every one that was given out; how many, 0 at the end.

    One that is held keeps its token: its worker may be there, and its attempt is known by it. New ones begin there: a
    job that the database has forgotten may be submitted again.
    """
    _change(tx, first_token=least)
    low = (
        select(jobs.c.job_id)
        .where(in_state(jobs.c.status, *WAITING), jobs.c.claim_token < least)
        .order_by(jobs.c.job_id)
        .limit(TOKENS_AT_ONCE)
    )
    found = values(tx, low)
    if found:
        tx.execute(
            update(jobs).where(jobs.c.job_id.in_(found), in_state(jobs.c.status, *WAITING)).values(claim_token=least)
        )
    return len(found)


def raise_token(tx: Tx, key: ClaimKey) -> None:
    """That of one job, unless it is held."""
    waiting = (jobs.c.job_id == key.job_id, in_state(jobs.c.status, *WAITING), jobs.c.claim_token < key.token)
    tx.execute(update(jobs).where(*waiting).values(claim_token=key.token))


def place_of(tx: Tx) -> Place:
    """What a copy of this database would have otherwise: a copied file, a restored dump, another server."""
    match tx.dialect:
        case "sqlite":
            rows = tx.connection.execute(text("PRAGMA database_list")).all()
            file = Path(next((str(file or "") for _, name, file in rows if name == "main"), ""))
            if not file.is_file():
                return {"memory": "this process"}
            machine = _MACHINE.read_text().strip() if _MACHINE.exists() else ""
            return {
                "path": str(file.resolve()),
                "inode": str(file.stat().st_ino),
                "machine": machine or socket.gethostname(),
            }
        case "postgresql":
            # One for each cluster of PostgreSQL, shared with its standbys; some services do not tell it.
            may = tx.scalar("SELECT has_function_privilege('pg_control_system()', 'execute')")
            return {
                "system": str(tx.scalar("SELECT system_identifier FROM pg_control_system()")) if may else "unknown",
                "database": str(tx.scalar("SELECT oid FROM pg_database WHERE datname = current_database()")),
            }
        case _:
            asked = {"server": "@@hostname", "port": "@@port", "directory": "@@datadir", "database": "DATABASE()"}
            return {name: str(tx.scalar(f"SELECT {what}")) for name, what in asked.items()}


def _change(tx: Tx, **changed: object) -> None:
    tx.execute(update(installation).where(installation.c.name == NAME).values(changed))
