"""P7 for the database: who cannot read it spawns nothing, ends nothing, says why, and goes on afterwards."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from herdsman.control.cycle import Cycle
from herdsman.control.leadership import LeaderPolicy
from herdsman.control.reconciler import Reconciler
from herdsman.core.policy import FleetPolicy, Promotion
from herdsman.testing.runpod import FakeRunpod
from tests.chaos.replica import Orders, a_reconciler
from tests.databases import ServerDatabases, opened
from tests.runpod import KEY

FLEET = FleetPolicy(promotion=Promotion.POD, heartbeat_timeout=timedelta(days=1))
# It leads all the time, in its own eyes: only what it cannot read keeps it from acting.
LEADER = LeaderPolicy(ttl=timedelta(minutes=10))
QUICK = timedelta(seconds=1)

pytestmark = [pytest.mark.chaos]


@dataclass
class Scene:
    server: ServerDatabases
    fake: FakeRunpod
    replica: Reconciler

    def changes(self) -> int:
        """What was asked of Runpod beyond looking."""
        return sum(1 for each in self.fake.ledger.requests if each.operation in ("create", "delete"))

    def blind(self, cycles: int) -> None:
        """The fleet loses a pod meanwhile, which would be a reason to act."""
        before = self.changes()
        self.fake.vanish(self.fake.ledger.alive[0].id)
        for _ in range(cycles):
            ran = self.replica.tick()
            assert said_why(ran), ran
        assert self.changes() == before

    def goes_on(self) -> None:
        ran = self.replica.tick()
        assert not ran.skipped
        assert ran.complete


@pytest.fixture
def scene(server: ServerDatabases) -> Iterator[Scene]:
    url = server.fresh()
    with opened(url, timeout=QUICK) as database, FakeRunpod(key=KEY, run_commands=False) as fake:
        replica = a_reconciler(database, Orders(url, fake.url, FLEET, LEADER), "one")
        replica.leadership.campaign()
        replica.tick()
        assert len(fake.ledger.alive) == FLEET.min_workers
        yield Scene(server, fake, replica)
        replica.leadership.resign()
    server.server.restart()


def test_nothing_is_done_while_the_database_is_down(scene: Scene) -> None:
    scene.server.server.kill()
    try:
        scene.blind(cycles=3)
    finally:
        scene.server.server.start()
    scene.goes_on()


def test_nothing_is_done_while_the_database_is_silent(scene: Scene) -> None:
    """Its connections stay open, and nothing comes back: only our own limit ends the wait."""
    scene.server.server.pause()
    try:
        scene.blind(cycles=3)
    finally:
        scene.server.server.resume()
    scene.goes_on()


def said_why(ran: Cycle) -> bool:
    return ran.seen is None and not ran.outcomes and bool(ran.summary()["skipped"])
