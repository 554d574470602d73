"""E1 and E3 with real processes: whoever dies, stops or leaves is replaced in time, and no old epoch ever writes."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import count

import pytest
from sqlalchemy import text

from herdsman.db.connection import Database
from herdsman.fleet import leader_sql
from herdsman.fleet.leader import LeaderPolicy
from herdsman.fleet.leader_sql import Term
from herdsman.testing.simulation.checks import violations
from herdsman.testing.simulation.checks.history import History, LeaderWrite
from tests.chaos.candidate import TABLES, lead
from tests.chaos.children import Children, children
from tests.chaos.waiting import percentile_99, summary, waited_for
from tests.support.amounts import SLACK, amount
from tests.support.builders import scalar, sql
from tests.support.databases import ServerDatabases, opened

REPLICAS = 3
USUAL = LeaderPolicy()
SCALE = 5
QUICK = LeaderPolicy(
    ttl=USUAL.ttl / SCALE, renew=USUAL.renew / SCALE, follow=USUAL.follow / SCALE, margin=USUAL.margin / SCALE
)
"""For what is waited for: a pause lasts longer than a term does."""
SECOND = timedelta(seconds=1)
CRASH, PAUSE, LEAVE = 3 * SECOND, 12 * SECOND, SECOND
"""What E3 allows."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


@dataclass
class Election:
    url: str
    database: Database
    family: Children
    policy: LeaderPolicy
    _names = count()

    def join(self) -> None:
        name = f"replica-{next(self._names)}"
        self.family.start(name, lead, self.url, name, self.policy)

    def writing(self, *, after: int = 0) -> Term:
        """The leader, once it has written something under an epoch later than that."""

        def look() -> Term | None:
            term = self.database.read(leader_sql.find_leader)
            wrote = scalar(self.database, "SELECT max(epoch) FROM chaos_writes WHERE refused = 0")
            return term if term is not None and term.epoch > after and wrote == term.epoch else None

        return waited_for(look)

    def succession(self, end: Callable[[str], None]) -> timedelta:
        """How long nobody could write after the leader was ended in that way."""
        term = self.writing()
        began = time.monotonic()
        end(term.holder)
        self.writing(after=term.epoch)
        return timedelta(seconds=time.monotonic() - began)

    def check(self) -> None:
        """Ids rise in the order of commits here: the fence holds the leader's row until the commit."""
        with self.database.engine.connect() as connection:
            written = connection.execute(
                text("SELECT id, epoch, holder FROM chaos_writes WHERE refused = 0 ORDER BY id")
            ).all()
        writes = tuple(LeaderWrite(holder=row.holder, epoch=row.epoch, at=row.id) for row in written)
        assert len(writes) > 0
        assert violations(History(writes=writes)) == []


@pytest.fixture
def start(server: ServerDatabases) -> Iterator[Callable[[LeaderPolicy], Election]]:
    url = server.fresh()
    with opened(url) as database, children("tests.chaos.candidate") as family:
        sql(database, TABLES[database.backend])

        def begin(policy: LeaderPolicy) -> Election:
            election = Election(url, database, family, policy)
            for _ in range(REPLICAS):
                election.join()
            return election

        yield begin
        for name in family.names:
            family.kill(name)
        sql(database, "DROP TABLE chaos_writes")


def test_a_leader_that_is_killed_is_replaced_within_three_seconds(
    start: Callable[[LeaderPolicy], Election], record_property: Callable[[str, object], None]
) -> None:
    """With the usual parameters."""
    election = start(USUAL)
    taken: list[timedelta] = []
    for _ in range(amount("LEADER_KILLS", 6, soak=50)):
        taken.append(election.succession(election.family.kill))
        election.join()
    record_property("takeover_s", summary(taken))
    assert percentile_99(taken) < CRASH * SLACK
    election.check()


def test_a_leader_that_is_stopped_is_replaced_and_cannot_write_when_it_wakes(
    start: Callable[[LeaderPolicy], Election], record_property: Callable[[str, object], None]
) -> None:
    """Five times as fast as usual, and so are the limits."""
    election = start(QUICK)
    taken: list[timedelta] = []
    for _ in range(amount("PAUSES", 2, soak=10)):
        old = election.writing()
        taken.append(election.succession(election.family.pause))
        election.family.resume(old.holder)
        waited_for(lambda old=old: refusals(election.database, old) or None)
    record_property("takeover_s", summary(taken))
    assert percentile_99(taken) < PAUSE / SCALE * SLACK
    election.check()


def test_a_leader_that_leaves_is_replaced_within_a_second(
    start: Callable[[LeaderPolicy], Election], record_property: Callable[[str, object], None]
) -> None:
    """With the usual parameters, counted from the signal: it ends its own threads in that time, too."""
    election = start(USUAL)
    taken: list[timedelta] = []
    for _ in range(amount("LEAVES", 3, soak=20)):
        taken.append(election.succession(election.family.ask_to_stop))
        election.join()
    record_property("takeover_s", summary(taken))
    assert percentile_99(taken) < LEAVE * SLACK
    election.check()


def refusals(database: Database, old: Term) -> int:
    """Writes under its old epoch that were refused to it."""
    refused = "SELECT count(*) FROM chaos_writes WHERE refused = 1 AND holder = :holder AND epoch = :epoch"
    return int(scalar(database, refused, holder=old.holder, epoch=old.epoch))
