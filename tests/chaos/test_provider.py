"""P1 to P5 at their worst: answers are lost, listings lag, deletes are ignored, and the loop is killed all the time."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from random import Random

import pytest
from sqlalchemy import select

from herdsman.context import Services
from herdsman.db.schema import cycles
from herdsman.fleet import installation_sql, stats_sql
from herdsman.fleet.leader import LeaderPolicy
from herdsman.fleet.model import FleetPolicy, Promotion, Stamp
from herdsman.fleet.stats_sql import Stay
from herdsman.ids import JobId
from herdsman.jobs.commands import cancel_job, submit_jobs
from herdsman.jobs.model import JobPolicy, NewJob
from herdsman.testing.fakes.runpod import FakeRunpod, Fault
from herdsman.testing.fakes.runpod.ledger import PodRecord
from herdsman.testing.simulation.checks import violations
from herdsman.testing.simulation.checks.history import Limits, Pod
from herdsman.testing.simulation.event_log import read_history
from herdsman.wire import new_job_id
from tests.chaos.children import Children, children
from tests.chaos.replica import Orders, control
from tests.chaos.waiting import percentile, summary, waited_for
from tests.support.amounts import amount
from tests.support.builders import scalar
from tests.support.databases import ServerDatabases, opened
from tests.support.runpod import KEY, NAMING

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
    scale_down_grace=timedelta(0),
    heartbeat_timeout=timedelta(days=1),
    spawning_timeout=5 * SECOND,
    absence_window=1.5 * SECOND,
    orphan_grace=timedelta(0),
    confirm_window=0.2 * SECOND,
    end_again_after=0.3 * SECOND,
    first_wait=0.1 * SECOND,
    longest_wait=0.5 * SECOND,
)
"""Hundreds of times as fast as usual."""
LEADER = LeaderPolicy(ttl=2 * SECOND, renew=0.4 * SECOND, follow=0.1 * SECOND, margin=0.2 * SECOND)
MEAN_ERROR = SECOND
"""Ours begins with the answer, or the listing that shows the pod, and ends with the first listing that lacks it: each
may be a cycle and a takeover late. In production that is some seconds of some hours; here, pods live for seconds."""
CLOCKS = timedelta(milliseconds=100)
"""The fake counts its instants from the moment that it began; the database reads its clock."""
MOST_CYCLES = 5
"""One look to notice an unknown pod, a later one to end it, and some for deletes without effect. Here only cycles can be
counted: they take as long as the machine lets them, and most are cut short by a kill."""

FEWEST_ORPHANS = 3
"""Chance alone may bring none into a short storm."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@dataclass
class Storm:
    services: Services
    fake: FakeRunpod
    family: Children
    orders: Orders
    random: Random
    jobs: list[JobId] = field(default_factory=list[JobId])
    orphans: list[str] = field(default_factory=list[str])
    kills: int = 0
    _names = count()

    def join(self) -> None:
        name = f"replica-{next(self._names)}"
        self.family.start(name, control, self.orders, name)

    def blow(self, until_created: int) -> None:
        """Demand comes and goes; now and then a replica dies, or Runpod has had enough of us."""
        while self.created() < until_created or len(self.orphans) < FEWEST_ORPHANS:
            for change in (self._more, self._none):
                change()
                self._mischief()
                time.sleep(self.random.uniform(0.1, 0.4))

    def _mischief(self) -> None:
        kinds = (self._kill, self._kill, self._orphan, self._too_many)
        if self.random.random() < 0.6:
            self.random.choice(kinds)()

    def created(self) -> int:
        return sum(1 for each in self.fake.ledger.requests if each.operation == "create")

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
        self.kills += 1
        self.join()

    def _too_many(self) -> None:
        self.fake.faults.turn_on(Fault.STORM_429, lasting=SECOND)
        time.sleep(0.1)
        self.fake.faults.turn_off(Fault.STORM_429)

    def _orphan(self) -> None:
        """A pod that carries our name and that nobody remembers."""
        known = self.services.database.read(installation_sql.find)
        if known is not None:
            own_part = Stamp(known.id, 0).own_part(f"orphan-{len(self.orphans)}")
            self.orphans.append(self.fake.add_foreign(NAMING.name(own_part)))


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
    storm.blow(until_created=amount("CREATES", 40, soak=400))
    storm.calm()
    calm = time.monotonic()
    waited_for(lambda: at_rest(storm) or None)
    took = time.monotonic() - calm
    book = storm.fake.ledger
    asked = Counter(each.name for each in book.requests if each.operation == "create")
    lost = sum(1 for each in book.requests if str(each.fault).startswith("created_then"))
    record_property("creates", f"{len(asked)} in {time.monotonic() - began:.0f} s, {lost} answers lost")
    record_property("kills", f"{storm.kills}, at rest {took:.1f} s after the last demand")
    lived = [end - begin for begin, end in orphan_lives(storm)]
    record_property("orphans", f"{summary(lived)}; cycles: {Counter(cycles_lived(storm))}")
    record_property("most_alive", book.most_alive)
    record_property("bill", bill(storm))
    check_books(storm)
    assert max(asked.values()) == 1, "a name was asked for twice"
    assert percentile(99, cycles_lived(storm)) <= MOST_CYCLES
    assert unpaid(storm) == []
    assert abs(mean_error(storm)) < MEAN_ERROR


def check_books(storm: Storm) -> None:
    """Runpod's ledger and our tables together; how soon orphans are found is counted in cycles, not in seconds."""
    zero = storm.services.database.read(lambda tx: tx.now())
    pods = tuple(
        Pod(
            name=pod.name,
            born=(pod.lives[0][0] - zero) / SECOND,
            died=(ended(pod) - zero) / SECOND,
            orphan=pod.foreign,
        )
        for pod in storm.fake.ledger.pods
    )
    history = read_history(storm.services.database, zero=zero)
    assert violations(replace(history, pods=pods, limits=Limits(most_pods=MAX))) == []


def at_rest(storm: Storm) -> bool:
    unfinished = "SELECT count(*) FROM workers WHERE status <> 'terminated'"
    left = [pod for pod in storm.fake.ledger.pods if pod.alive]
    return not left and scalar(storm.services.database, unfinished) == 0


def orphan_lives(storm: Storm) -> list[tuple[datetime, datetime]]:
    pods = {pod.id: pod for pod in storm.fake.ledger.pods}
    return [(pods[orphan].lives[0][0], ended(pods[orphan])) for orphan in storm.orphans]


def cycles_lived(storm: Storm) -> list[int]:
    """How many cycles that saw everything were begun and ended while an orphan lived."""
    with storm.services.database.engine.connect() as connection:
        rows = connection.execute(select(cycles.c.started_at, cycles.c.finished_at, cycles.c.summary)).all()
    whole = [(began, finished) for began, finished, said in rows if not said["skipped"]]
    return [
        sum(1 for began, finished in whole if begin <= began and finished <= end) for begin, end in orphan_lives(storm)
    ]


def unpaid(storm: Storm) -> list[str]:
    """Pods that ran and that our ledger does not know of, or has written off while they ran."""
    return [
        pod.name
        for pod, stay in both_books(storm)
        if stay is None or stay.ended_at is None or stay.ended_at < ended(pod) - CLOCKS
    ]


def mean_error(storm: Storm) -> timedelta:
    """How much longer a pod lived in our ledger than at Runpod."""
    errors = [
        (stay.ended_at - stay.started_at) - (ended(pod) - pod.lives[0][0])
        for pod, stay in both_books(storm)
        if stay is not None and stay.ended_at is not None
    ]
    return sum(errors, timedelta(0)) / len(errors)


def bill(storm: Storm) -> str:
    theirs = [ended(pod) - pod.lives[0][0] for pod, _ in both_books(storm)]
    return f"a pod lived {sum(theirs, timedelta(0)) / len(theirs)} on average, in our ledger {mean_error(storm)} longer"


def both_books(storm: Storm) -> list[tuple[PodRecord, Stay | None]]:
    stays = storm.services.database.read(lambda tx: stats_sql.instance_stays(tx, tx.now() - timedelta(days=1)))
    ours = {stay.name: stay for stay in stays}
    return [(pod, ours.get(pod.name)) for pod in storm.fake.ledger.pods if not pod.foreign]


def ended(pod: PodRecord) -> datetime:
    end = pod.lives[-1][1]
    assert end is not None, f"{pod.name} lives"
    return end
