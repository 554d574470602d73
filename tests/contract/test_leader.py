"""E1 to E4: two may believe that they lead, one can write."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from herdsman.db.connection import Database, Tx
from herdsman.errors import StaleWrite
from herdsman.fleet import leader_sql
from herdsman.fleet.leader import LeaderPolicy, Leadership
from herdsman.fleet.leader_sql import Term
from herdsman.ports import SystemClock
from tests.support.databases import MovingClock

POLICY = LeaderPolicy()
LATER = timedelta(seconds=11)


class HandClock:
    """Time inside a process, moved by the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, duration: timedelta) -> None:
        self.now += duration.total_seconds()


@pytest.fixture
def hand() -> HandClock:
    return HandClock()


@pytest.fixture
def candidate(database: Database, hand: HandClock) -> Callable[[str], Leadership]:
    return lambda name: Leadership(database, hand, name, POLICY)


def test_the_first_to_ask_leads_and_stays_the_leader(candidate: Callable[[str], Leadership]) -> None:
    ann, bob = candidate("ann"), candidate("bob")
    first = ann.campaign()
    assert first is not None
    assert first.epoch == 1
    assert bob.campaign() is None
    again = ann.campaign()
    assert again is not None
    assert (again.epoch, again.acquired_at) == (1, first.acquired_at)


def test_a_silent_leader_is_replaced_with_a_higher_epoch(
    candidate: Callable[[str], Leadership], clock: MovingClock
) -> None:
    ann, bob = candidate("ann"), candidate("bob")
    ann.campaign()
    clock.advance(LATER)
    term = bob.campaign()
    assert term is not None
    assert (term.holder, term.epoch) == ("bob", 2)
    assert ann.campaign() is None


def test_a_leader_that_was_away_too_long_begins_a_new_term(
    candidate: Callable[[str], Leadership], clock: MovingClock
) -> None:
    """It may have been replaced meanwhile, so what it had decided before is void."""
    ann = candidate("ann")
    ann.campaign()
    clock.advance(LATER)
    term = ann.campaign()
    assert term is not None
    assert term.epoch == 2


def test_the_write_of_an_old_epoch_is_refused(
    database: Database, candidate: Callable[[str], Leadership], clock: MovingClock
) -> None:
    """E1: a leader that was stopped and wakes up still believes, and cannot write."""
    ann, bob = candidate("ann"), candidate("bob")
    old = ann.campaign()
    assert old is not None
    database.transact(lambda tx: ann.fence(tx, old.epoch))
    clock.advance(LATER)
    with pytest.raises(StaleWrite, match="ann no longer leads with epoch 1"):
        database.transact(lambda tx: ann.fence(tx, old.epoch))
    bob.campaign()
    assert ann.term == old, "its own clock has not moved: it believes"
    with pytest.raises(StaleWrite):
        database.transact(lambda tx: ann.fence(tx, old.epoch))


def test_a_leader_is_sure_only_as_long_as_its_last_renewal_carries(
    candidate: Callable[[str], Leadership], hand: HandClock
) -> None:
    ann = candidate("ann")
    ann.campaign()
    hand.now = 8.9
    assert ann.term is not None
    ann.require_sure(1)
    hand.now = 9.1
    assert ann.term is None
    with pytest.raises(StaleWrite, match="no longer sure"):
        ann.require_sure(1)


def test_who_resigns_lets_the_next_one_in_at_once(candidate: Callable[[str], Leadership]) -> None:
    ann, bob = candidate("ann"), candidate("bob")
    ann.campaign()
    ann.resign()
    assert ann.term is None
    term = bob.campaign()
    assert term is not None
    assert term.epoch == 2


def test_of_many_that_ask_at_once_one_leads(database: Database) -> None:
    def ask(name: str) -> Term | None:
        return Leadership(database, SystemClock(), name, POLICY).campaign()

    with ThreadPoolExecutor(8) as threads:
        terms = [term for term in threads.map(ask, [f"candidate-{number}" for number in range(24)]) if term]
    assert len({term.holder for term in terms}) == 1
    assert {term.epoch for term in terms} == {1}


def test_nobody_takes_over_while_a_fenced_write_is_open(
    database: Database, candidate: Callable[[str], Leadership]
) -> None:
    """The takeover waits for the write, or the write sees the takeover; never both."""
    ann = candidate("ann")
    term = ann.campaign()
    assert term is not None

    def write_then_expire(tx: Tx) -> None:
        ann.fence(tx, term.epoch)
        leader_sql.resign_leadership(tx, "ann", term.epoch)

    database.transact(write_then_expire)
    with pytest.raises(StaleWrite):
        database.transact(lambda tx: ann.fence(tx, term.epoch))
