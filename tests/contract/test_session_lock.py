"""E3 and E5: the session lock tells that a leader is gone, and nothing more; where it cannot, it switches itself off."""

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from herdsman.db.advisory_lock import STATEMENTS, SessionLock, open_session_lock
from herdsman.db.connection import Database, Tx
from herdsman.db.schema import leader
from herdsman.errors import StaleWrite, StoreUnavailable
from herdsman.fleet.leader import LeaderPolicy, Leadership
from herdsman.ports import SystemClock
from tests.chaos.waiting import waited_for
from tests.support.builders import scalar
from tests.support.databases import ServerDatabases, SqliteFiles, opened

NAME = "gpu_orchestrator_leader"
SECOND = timedelta(seconds=1)
POLICY = LeaderPolicy()


@pytest.fixture
def shared(server: ServerDatabases) -> Iterator[Database]:
    with opened(server.fresh()) as database:
        yield database


@pytest.fixture
def lock(shared: Database) -> Iterator[Callable[..., SessionLock]]:
    made: list[SessionLock] = []

    def make(idle: timedelta = 10 * SECOND) -> SessionLock:
        found = open_session_lock(shared, NAME, idle=idle)
        assert found is not None
        made.append(found)
        return found

    yield make
    for each in made:
        each.release()


def candidate(database: Database, name: str, lock: SessionLock) -> Leadership:
    return Leadership(database, SystemClock(), name, POLICY, lock)


def test_one_has_it_until_its_session_ends(lock: Callable[..., SessionLock]) -> None:
    ann, bob = lock(), lock()
    assert ann.take()
    assert ann.take(), "it is still ours"
    assert not bob.take()
    ann.release()
    assert waited_for(lambda: bob.take() or None)
    assert not ann.take()


def test_who_falls_silent_loses_it(lock: Callable[..., SessionLock]) -> None:
    """A stopped process never says that it is gone: the server ends its session."""
    ann, bob = lock(SECOND), lock(10 * SECOND)
    assert ann.take()
    waited_for(lambda: bob.take() or None, 5 * SECOND)
    assert not ann.take()


def test_it_has_the_name_that_others_know_it_by(mariadb: ServerDatabases) -> None:
    with opened(mariadb.fresh()) as database:
        lock = open_session_lock(database, NAME, idle=SECOND)
        assert lock is not None
        assert lock.take()
        assert scalar(database, "SELECT is_used_lock('gpu_orchestrator_leader')") is not None
        lock.release()


@pytest.mark.parametrize("found", ["another", "mine"])
def test_behind_a_pooler_it_switches_itself_off(shared: Database, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session that answers is not the one that we have marked, or others find our mark in theirs."""
    monkeypatch.setattr(secrets, "token_hex", constantly("mine"))
    words = replace(STATEMENTS[shared.engine.dialect.name], marked=f"SELECT '{found}'")
    lock = SessionLock(shared, words, NAME, SECOND)
    assert not lock.take()
    assert lock.off


def constantly(word: str) -> Callable[[int], str]:
    return lambda _size: word


def test_sqlite_has_none(sqlite: SqliteFiles) -> None:
    with opened(sqlite.fresh()) as database:
        assert open_session_lock(database, NAME, idle=SECOND) is None


def test_a_dead_leader_is_replaced_before_its_term_ends(shared: Database, lock: Callable[..., SessionLock]) -> None:
    anns = lock()
    ann, bob = candidate(shared, "ann", anns), candidate(shared, "bob", lock())
    assert ann.campaign()
    assert bob.campaign() is None
    anns.release()
    term = waited_for(bob.campaign)
    assert (term.holder, term.epoch) == ("bob", 2)
    with pytest.raises(StaleWrite):
        shared.transact(lambda tx: ann.fence(tx, 1))
    assert ann.campaign() is None


def test_who_wakes_up_with_the_lock_does_not_take_the_row_back(
    shared: Database, lock: Callable[..., SessionLock]
) -> None:
    """Its lock is a leftover of its own term, and says nothing about the one who leads now."""
    ann, bob = candidate(shared, "ann", lock()), candidate(shared, "bob", lock())
    assert ann.campaign()
    shared.transact(lambda tx: tx.execute(update(leader).values(expires_at=tx.now())))
    assert bob.campaign()
    assert ann.campaign() is None, "and it lets the lock go"
    term = bob.campaign()
    assert ann.campaign() is None
    assert term is not None
    assert term.epoch == 2


def test_a_leader_that_is_stopped_in_a_transaction_does_not_keep_the_row(server: ServerDatabases) -> None:
    """Found by chaos: the fence holds the row, and a stopped process never lets go by itself."""
    url = server.fresh()
    with opened(url, timeout=SECOND) as database, opened(url) as other, ThreadPoolExecutor(1) as threads:
        ann = Leadership(database, SystemClock(), "ann", replace(POLICY, ttl=SECOND))
        bob = Leadership(other, SystemClock(), "bob", POLICY)
        term = ann.campaign()
        assert term is not None

        def stopped(tx: Tx) -> None:
            ann.fence(tx, term.epoch)
            taken = waited_for(lambda: threads.submit(bob.campaign).result(), 10 * SECOND)
            assert taken.epoch == 2
            ann.fence(tx, term.epoch)

        with pytest.raises((StaleWrite, StoreUnavailable)):
            database.transact(stopped)
