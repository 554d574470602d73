"""A replica that does not lead asks the one that does, and hears what came of it."""

from datetime import timedelta
from threading import Event

import pytest

from herdsman.context import Services
from herdsman.db.connection import Record
from herdsman.errors import StaleWrite
from herdsman.fleet import leader_sql
from herdsman.fleet.leader import LeaderPolicy
from herdsman.fleet.reconcile import PATIENCE, RECONCILE, LeaderInbox, Reconciler, ask_leader
from herdsman.ports import SystemClock
from tests.support.builders import a_job
from tests.support.control_loop import a_harness
from tests.support.databases import MovingClock

CLOCK = SystemClock()


def ask(services: Services, name: str = "r1") -> None:
    services.database.transact(lambda tx: leader_sql.ask_leader_row(tx, name, RECONCILE, "ann"))


def answer(services: Services, name: str = "r1") -> Record:
    found = services.database.read(lambda tx: leader_sql.find_request(tx, name))
    assert found is not None
    return found


def an_inbox(services: Services, replica: Reconciler) -> LeaderInbox:
    replica.leadership.campaign()
    return LeaderInbox(services, replica, CLOCK)


def test_the_leader_acts_and_tells_all_who_asked(services: Services, clock: MovingClock) -> None:
    a_job(services)
    with a_harness(services, clock) as harness:
        inbox = an_inbox(services, harness.replica())
        ask(services, "r1")
        ask(services, "r2")
        assert inbox.answer_waiting() == 2
        told = [answer(services, name) for name in ("r1", "r2")]
        assert inbox.answer_waiting() == 0, "once is enough"
    assert told[0]["outcome"] == told[1]["outcome"]
    assert told[0]["outcome"] is not None
    assert told[0]["outcome"]["actions"]["workers_spawned"] == 2


def test_who_does_not_lead_does_not_answer(services: Services, clock: MovingClock) -> None:
    """Only the leader acts."""
    with a_harness(services, clock) as harness:
        harness.replica("one").leadership.campaign()
        follower = an_inbox(services, harness.replica("two"))
        ask(services)
        assert follower.answer_waiting() == 0
    assert answer(services)["taken_at"] is None


def test_what_a_leader_took_and_did_not_end_its_successor_ends(
    services: Services, clock: MovingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_harness(services, clock) as harness:
        first = an_inbox(services, harness.replica("one"))
        ask(services)

        def dies(_self: Reconciler) -> None:
            raise StaleWrite("killed here")

        with monkeypatch.context() as patch:
            patch.setattr(Reconciler, "tick", dies)
            with pytest.raises(StaleWrite):
                first.answer_waiting()
        assert answer(services)["taken_at"] is not None
        first.reconciler.leadership.resign()
        assert an_inbox(services, harness.replica("two")).answer_waiting() == 1
    assert answer(services)["outcome"] is not None


def test_an_old_leader_cannot_answer(services: Services, clock: MovingClock) -> None:
    """E1: two may believe, one can write."""
    with a_harness(services, clock) as harness:
        harness.leader = LeaderPolicy()
        old = an_inbox(services, harness.replica("one"))
        ask(services)
        clock.advance(timedelta(seconds=11))  # the database's clock alone: the old one still believes
        ask(services, "r2")
        harness.replica("two").leadership.campaign()
        with pytest.raises(StaleWrite):
            old.answer_waiting()
    assert answer(services, "r2")["taken_at"] is None


def test_nobody_acts_on_what_nobody_waits_for(services: Services, clock: MovingClock) -> None:
    with a_harness(services, clock) as harness:
        ask(services)
        clock.advance(PATIENCE + timedelta(seconds=1))
        assert an_inbox(services, harness.replica()).answer_waiting() == 0
        clock.advance(leader_sql.KEPT)
        an_inbox(services, harness.replica()).answer_waiting()
    assert services.database.read(lambda tx: leader_sql.find_request(tx, "r1")) is None, "old ones are removed"


def test_who_asks_waits_no_longer_than_it_said(services: Services) -> None:
    began = CLOCK.monotonic()
    assert ask_leader(services, "r1", "ann", CLOCK, Event(), timedelta(seconds=0.3)) is None
    assert CLOCK.monotonic() - began < 5


def test_who_stops_does_not_wait(services: Services) -> None:
    stopping = Event()
    stopping.set()
    assert ask_leader(services, "r1", "ann", CLOCK, stopping) is None
