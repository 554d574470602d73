"""LISTEN and NOTIFY on PostgreSQL: one replica hears at once that another has queued a job."""

import threading
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from herdsman.db.connection import Database
from herdsman.db.notify import Wakeup, open_wakeup
from tests.chaos.waiting import waited_for
from tests.support.databases import Backend, ServerDatabases, opened

PATIENCE = 30


class Heard:
    def __init__(self) -> None:
        self.event = threading.Event()

    def __call__(self) -> None:
        self.event.set()

    def again(self) -> bool:
        found = self.event.wait(PATIENCE)
        self.event.clear()
        return found


Opening = Callable[[Heard], Wakeup]


@pytest.fixture
def shared(postgresql: ServerDatabases) -> Iterator[Database]:
    with opened(postgresql.fresh()) as database:
        yield database


@pytest.fixture
def listening(shared: Database) -> Iterator[Opening]:
    made: list[Wakeup] = []

    def start(heard: Heard) -> Wakeup:
        wakeup = open_wakeup(shared)
        assert wakeup is not None
        wakeup.start(heard)
        made.append(wakeup)
        waited_for(lambda: wakeup.listening or None)
        assert heard.again(), "who begins to listen may have missed something"
        return wakeup

    yield start
    for each in made:
        each.stop()


def test_the_others_are_woken_and_not_oneself(listening: Opening) -> None:
    mine, theirs = Heard(), Heard()
    wakeup = listening(mine)
    listening(theirs)
    wakeup.ring()
    assert theirs.again()
    assert not mine.event.is_set()


def test_many_rings_at_once_are_few_words(listening: Opening) -> None:
    heard = Heard()
    wakeup = listening(Heard())
    listening(heard)
    for _ in range(10_000):
        wakeup.ring()
    assert heard.again()


def test_a_connection_that_was_cut_is_made_again(listening: Opening, shared: Database) -> None:
    heard = Heard()
    listening(heard)
    cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    assert shared.read(lambda tx: tx.execute(text(cut)).scalar_one()) == 1
    assert heard.again(), "it listens again, and may have missed something"
    other = listening(Heard())
    other.ring()
    assert heard.again()


def test_no_setting_is_left_in_the_session(listening: Opening, shared: Database) -> None:
    """A pooler would hand it to somebody whose commit must wait for the disk."""
    heard = Heard()
    wakeup = listening(Heard())
    listening(heard)
    wakeup.ring()
    assert heard.again()
    assert shared.read(lambda tx: tx.scalar("SHOW synchronous_commit")) == "on"


@pytest.mark.parametrize("name", ["sqlite", "mariadb"])
def test_elsewhere_there_is_no_such_thing(name: str, request: pytest.FixtureRequest) -> None:
    backend: Backend = request.getfixturevalue(name)
    with opened(backend.fresh()) as database:
        assert open_wakeup(database) is None
