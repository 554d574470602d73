"""P1 to P5 at their worst: answers are lost, listings lag, deletes are ignored, and the loop is killed all the time."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from random import Random

import pytest

from herdsman.control.commands import cancel_job, submit_jobs
from herdsman.control.leadership import LeaderPolicy
from herdsman.control.services import Services
from herdsman.core.model import JobId, JobPolicy, NewJob
from herdsman.core.policy import FleetPolicy, Promotion
from herdsman.store import ledger
from herdsman.testing.runpod import FakeRunpod, Fault
from herdsman.wiring import new_job_id
from tests.builders import scalar
from tests.chaos.children import Children, children
from tests.chaos.effort import effort
from tests.chaos.replica import Orders, control
from tests.databases import ServerDatabases, opened
from tests.runpod import KEY, NAMING

MAX = 10
SECOND = timedelta(seconds=1)
LAG = 0.4 * SECOND
"""How long a new pod may be missing from listings: less than `absence_window`, as in production."""
FLEET = FleetPolicy(
    min_workers=0,
    max_workers=MAX,
    jobs_per_worker=1,
    promotion=Promotion.POD,
    idle_timeout=0.05 * SECOND,
    overcapacity_idle_timeout=0.05 * SECOND,
    heartbeat_timeout=timedelta(days=1),
    spawning_timeout=5 * SECOND,
    absence_window=1.5 * SECOND,
    confirm_window=0.2 * SECOND,
    end_again_after=0.3 * SECOND,
    first_wait=0.1 * SECOND,
    longest_wait=0.5 * SECOND,
)
"""A hundred times as fast as usual, or faster: the unknown pod that has 90 s in production has 0.9 s here."""
LEADER = LeaderPolicy(ttl=2 * SECOND, renew=0.4 * SECOND, follow=0.1 * SECOND, margin=0.2 * SECOND)
UNKNOWN_FOR = 3 * SECOND
"""Seconds, not 0.9: a kill costs a takeover, and cycles do not get shorter than the machine can run them."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@dataclass
class Storm:
    services: Services
    fake: FakeRunpod
    family: Children
    orders: Orders
    random: Random
    jobs: list[JobId] = field(default_factory=list[JobId])
    _names = count()

    def join(self) -> None:
        name = f"replica-{next(self._names)}"
        self.family.start(name, control, self.orders, name)

    def blow(self, until_created: int) -> None:
        """Demand comes and goes; now and then a replica dies, or Runpod has had enough of us."""
        moves = (self._more, self._more, self._none, self._none, self._kill, self._too_many, self._stray)
        while self.created() < until_created:
            self.random.choice(moves)()
            time.sleep(0.3)

    def created(self) -> int:
        return len(self.fake.ledger.pods)

    def calm(self) -> None:
        self.fake.faults.clear()
        self._none()

    def _more(self) -> None:
        new = [NewJob(type="demo") for _ in range(self.random.randint(1, 2 * MAX))]
        self.jobs += [job.job_id for job in submit_jobs(self.services, new)]

    def _none(self) -> None:
        while self.jobs:
            cancel_job(self.services, self.jobs.pop())

    def _kill(self) -> None:
        self.family.kill(self.random.choice(self.family.names))
        self.join()

    def _too_many(self) -> None:
        self.fake.faults.turn_on(Fault.STORM_429, lasting=SECOND)
        time.sleep(0.1)
        self.fake.faults.turn_off(Fault.STORM_429)

    def _stray(self) -> None:
        """A pod that carries our name and that nobody remembers."""
        self.strays.append(self.fake.add_foreign(NAMING.name(f"stray-{len(self.strays)}")))

    strays: list[str] = field(default_factory=list[str])


@pytest.fixture
def storm(server: ServerDatabases) -> Iterator[Storm]:
    url = server.fresh()
    with (
        opened(url) as database,
        FakeRunpod(key=KEY, seed=7, run_commands=False) as fake,
        children("tests.chaos.replica") as family,
    ):
        fake.faults.turn_on(Fault.CREATED_THEN_500, rate=0.15)
        fake.faults.turn_on(Fault.CREATED_THEN_CUT, rate=0.15)
        fake.faults.turn_on(Fault.LISTING_LAG, rate=0.3, lasting=LAG)
        fake.faults.turn_on(Fault.DELETE_IGNORED, rate=0.2)
        fake.faults.turn_on(Fault.FALSE_404, rate=0.1)
        services = Services(database, JobPolicy(), new_job_id)
        orders = Orders(url, fake.url, FLEET, LEADER)
        raging = Storm(services, fake, family, orders, Random(7))
        for _ in range(2):
            raging.join()
        yield raging


def test_no_storm_leaks_a_pod_or_makes_one_too_many(
    storm: Storm, record_property: Callable[[str, object], None]
) -> None:
    began = time.monotonic()
    storm.blow(until_created=effort("CREATES", 300))
    storm.calm()
    took = waited_until(lambda: at_rest(storm))
    pods = storm.fake.ledger.pods
    record_property("creates", f"{len(pods)} in {time.monotonic() - began:.0f} s, at rest after {took:.1f} s")
    assert storm.fake.ledger.most_alive <= MAX
    asked = Counter(each.name for each in storm.fake.ledger.requests if each.operation == "create")
    assert max(asked.values()) == 1, "a name was asked for twice"
    ambiguous = sum(1 for each in storm.fake.ledger.requests if str(each.fault).startswith("created_then"))
    record_property("ambiguous", f"{ambiguous / len(asked):.0%}")
    assert max(stray_lives(storm), default=timedelta(0)) < UNKNOWN_FOR
    check_bill(storm, record_property)


def at_rest(storm: Storm) -> bool:
    unfinished = "SELECT count(*) FROM workers WHERE status <> 'terminated'"
    left = [pod for pod in storm.fake.ledger.pods if pod.alive]
    return not left and scalar(storm.services.database, unfinished) == 0


def stray_lives(storm: Storm) -> list[timedelta]:
    now = datetime.now().astimezone()
    lives = {pod.id: pod.lives for pod in storm.fake.ledger.pods}
    return [(end or now) - begin for stray in storm.strays for begin, end in lives[stray]]


def check_bill(storm: Storm, record_property: Callable[[str, object], None]) -> None:
    """Ours begins with the provider's answer or the listing that shows the pod, and ends when its absence is sure."""
    database = storm.services.database
    stays = {stay.name: stay for stay in database.read(lambda tx: ledger.stays(tx, tx.now() - timedelta(days=1)))}
    for pod in storm.fake.ledger.pods:
        if pod.foreign:
            continue
        (begin, end), = pod.lives
        assert end is not None
        ours = stays[pod.name]
        assert ours.ended_at is not None
        assert ours.ended_at >= end - SECOND, f"{pod.name} was written off while it lived"
    record_property("bill", len(stays))


def waited_until(fact: Callable[[], bool], limit: timedelta = 60 * SECOND) -> float:
    began = time.monotonic()
    while not fact():
        assert time.monotonic() - began < limit.total_seconds(), "it did not happen"
        time.sleep(0.05)
    return time.monotonic() - began
