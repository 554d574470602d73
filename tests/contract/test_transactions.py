"""Work that another transaction was in the way of is done again as a whole, and not for ever (S6)."""

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pymysql
import pytest
from psycopg.errors import SerializationFailure
from sqlalchemy import text

from herdsman.db.connection import TRIES, Database, Tx
from herdsman.errors import StoreUnavailable
from herdsman.states import JOB, WORKER
from tests.support.builders import scalar
from tests.support.rows import add_row

NOTE = "UPDATE workers SET instance_type = :note WHERE id = :id"


class PatientClock:
    """Notes the pauses and makes none."""

    def __init__(self) -> None:
        self.pauses: list[timedelta] = []

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, duration: timedelta) -> None:
        self.pauses.append(duration)


@pytest.fixture
def patient(url: str) -> Iterator[tuple[Database, PatientClock]]:
    clock = PatientClock()
    database = Database(url, clock=clock, chance=lambda: 0.5)
    yield database, clock
    database.close()


def test_s6_contended_work_is_undone_and_done_again(patient: tuple[Database, PatientClock]) -> None:
    database, clock = patient
    add_row(database, JOB)
    calls: list[int] = []

    def work(tx: Tx) -> str:
        calls.append(1)
        tx.execute(text("UPDATE job_states SET out_of_memory = out_of_memory + 1"))
        if len(calls) < 3:
            raise contended(database)
        return "done"

    assert database.transact(work) == "done"
    assert (len(calls), len(clock.pauses)) == (3, 2)
    assert scalar(database, "SELECT out_of_memory FROM orchestrator_jobs") == 1


def test_s6_the_pauses_grow_and_the_tries_end(patient: tuple[Database, PatientClock]) -> None:
    database, clock = patient

    def work(_: Tx) -> None:
        raise contended(database)

    with pytest.raises(StoreUnavailable, match=f"the database was too busy, {TRIES} tries in a row failed: "):
        database.transact(work)
    assert clock.pauses == sorted(clock.pauses)
    assert sum(clock.pauses, timedelta()) < timedelta(seconds=10)


def test_work_that_is_done_alone_and_in_another_s_way_says_so(database: Database) -> None:
    with pytest.raises(StoreUnavailable), database.alone():
        raise contended(database)


def contended(database: Database) -> Exception:
    """What each driver raises when another transaction was in the way."""
    match database.backend:
        case "PostgreSQL":
            return SerializationFailure("could not serialize access")
        case "MariaDB":
            return pymysql.err.OperationalError(1213, "Deadlock found when trying to get lock")
        case _:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            return error


def test_s6_two_that_lock_in_opposite_order_both_get_done(database: Database) -> None:
    for name in ("a", "b"):
        add_row(database, WORKER, name)
    both = threading.Barrier(2)

    def lock(first: str, second: str) -> None:
        def work(tx: Tx) -> None:
            tx.execute(text(NOTE), {"note": first, "id": first})
            with suppress(threading.BrokenBarrierError):  # the second try, or a database with one writer
                both.wait(timeout=0.5)
            tx.execute(text(NOTE), {"note": first, "id": second})

        database.transact(work)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(lock, *names) for names in ("ab", "ba")]:
            done.result(timeout=30)
    notes = {scalar(database, "SELECT instance_type FROM workers WHERE id = :id", id=name) for name in "ab"}
    assert len(notes) == 1, "one of the two did all of its work last"


def test_an_error_of_our_own_undoes_everything(database: Database) -> None:
    def work(tx: Tx) -> None:
        tx.execute(text(NOTE), {"note": "changed", "id": "a"})
        raise KeyboardInterrupt

    add_row(database, WORKER, "a")
    with pytest.raises(KeyboardInterrupt):
        database.transact(work)
    assert scalar(database, "SELECT instance_type FROM workers") is None


def test_everything_in_one_transaction_happens_at_one_instant(database: Database) -> None:
    first, second = database.transact(lambda tx: (tx.now(), tx.now()))
    assert first == second
