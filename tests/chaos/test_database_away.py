"""P7 for the database: who cannot read it spawns nothing, ends nothing, says why, and goes on afterwards."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from herdsman.fleet import snapshot_sql
from herdsman.fleet.leader import LeaderPolicy
from herdsman.fleet.model import FleetPolicy, Promotion
from herdsman.fleet.reconcile import Reconciler
from herdsman.fleet.recording import Cycle
from herdsman.states import JOB, WorkerStatus
from herdsman.testing.fakes.runpod import FakeRunpod
from tests.chaos.replica import Orders, a_reconciler
from tests.chaos.site import Site, site
from tests.support.amounts import amount
from tests.support.databases import ServerDatabases, opened
from tests.support.runpod import KEY
from tests.support.servers.mariadb import MariadbServer

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


FLEET_OF_THREE = {
    "MIN_ACTIVE_GPUS": "3",
    "MAX_ACTIVE_GPUS": "3",
    "FAKE_GPUS": "3",
    "WORKER_MODULES": "tests.chaos.kill_handlers",
    "MAX_ATTEMPTS": "1",
    "MAX_WORKER_LOSSES": "1",
    "MAX_INTERRUPTIONS": "0",
    # Workers that a failed test leaves behind end themselves.
    "WORKER_UNOWNED_SEC": "60",
}
SCALED = {
    "LEADER_TTL_SEC": "2",
    "LEADER_RENEW_SEC": "0.5",
    "HEARTBEAT_INTERVAL_SEC": "0.5",
    "SELF_FENCE_SEC": "12",
    "CLAIM_TTL_SEC": "13",
    "HEARTBEAT_TIMEOUT_SEC": "13",
    "TASK_STUCK_TIMEOUT_SEC": "14",
    "SQL_TIMEOUT_SEC": "1",
}
"""An answer that a silent server owes takes six seconds to be given up, whatever SQL_TIMEOUT_SEC is: a worker on a busy
machine needs the other six of its fence."""
SHIPPED = {
    "LEADER_TTL_SEC": "10",
    "LEADER_RENEW_SEC": "2",
    "HEARTBEAT_INTERVAL_SEC": "5",
    "SELF_FENCE_SEC": "25",
    "CLAIM_TTL_SEC": "30",
    "SWEEP_INTERVAL_SEC": "5",
    "CANCEL_GRACE_SEC": "30",
    "HEARTBEAT_TIMEOUT_SEC": "30",
    "SQL_TIMEOUT_SEC": "10",
}
"""As installed, with the shorter patience that `herdsman up` has with workers of its own machine."""


@pytest.mark.timeout(3600)
def test_p10_an_outage_under_load_ends_no_worker_and_costs_no_attempt(
    server: ServerDatabases, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """HERDSMAN_CHAOS_OUTAGE_SEC=360 makes it one of six minutes, with the settings that are shipped."""
    given = amount("OUTAGE_SEC", 0)
    outage_s, timings = (given, SHIPPED) if given else (18, SCALED)
    with site(server.fresh(), tmp_path, **{**FLEET_OF_THREE, **timings}) as here:
        here.until(lambda: list(workers(here).values()) == [WorkerStatus.ACTIVE] * 3)
        fleet = workers(here)
        long = [here.submit("lane", seconds=outage_s * part) for part in (0.5, 0.9)]
        long.append(here.submit("lane", seconds=outage_s + 2))
        here.until(lambda: all(here.did("started", each) for each in long))
        for _ in range(20):
            here.submit("lane", seconds=0.1)
        away(server, outage_s)
        back_at = time.monotonic()
        here.until(lambda: all(here.job(each).status in JOB.terminal for each in here.numbers), 120)
        record_property("seconds until all were done", round(time.monotonic() - back_at, 1))
        assert workers(here) == fleet, here.story()
        here.check()
        for each in map(here.job, here.numbers):
            assert (each.attempts, each.interruptions, each.worker_losses) == (1, 0, 0), here.story()
            assert here.did("started", each.job_id) == 1
        # Its workers are those of this machine: they end with it.
        os.kill(here.pack.pid("api"), signal.SIGTERM)
        here.until(lambda: not here.pack.alive("api"))


def away(server: ServerDatabases, seconds: float) -> None:
    """One is down, and the other one does not answer, as when a network swallows packets."""
    silent = isinstance(server.server, MariadbServer)
    (server.server.pause if silent else server.server.kill)()
    try:
        time.sleep(seconds)
    finally:
        (server.server.resume if silent else server.server.start)()


def workers(here: Site) -> dict[str, WorkerStatus]:
    """All that ever were."""
    return {str(each.id): each.status for each in here.services.database.read(snapshot_sql.read_workers)}
