"""P10, W5: an outage of the database is not silence of workers, and no job is run by two because of one."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.fleet import leader_sql
from herdsman.fleet.leader import LeaderPolicy, Leadership
from herdsman.fleet.leader_sql import LATELY
from herdsman.jobs.commands import find_job, submit_job
from herdsman.jobs.model import Claim, NewJob
from herdsman.jobs.sweep import expire_claims
from herdsman.states import JobStatus
from tests.contract.test_leader import HandClock
from tests.support.builders import a_claim, a_worker, claimed
from tests.support.databases import MovingClock
from tests.support.worker_calls import beat

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
POLICY = LeaderPolicy(hold=30 * MINUTE)
FENCE_S = 25.0


@dataclass
class Time:
    """The database's clock and those of the replicas, which go at the same pace."""

    moving: MovingClock
    hand: HandClock

    def pass_(self, span: timedelta) -> None:
        self.moving.advance(span)
        self.hand.sleep(span)

    def led(self, leaders: Leadership, span: timedelta) -> None:
        """The same, and the leader renews meanwhile."""
        while span > timedelta(0):
            self.pass_(min(span, 2 * SECOND))
            assert leaders.campaign() is not None
            span -= 2 * SECOND


@pytest.fixture
def time(clock: MovingClock) -> Time:
    clock.stop(at=datetime(2026, 3, 1, 12, tzinfo=UTC))
    return Time(clock, HandClock())


Replica = Callable[..., Leadership]


@pytest.fixture
def replica(database: Database, time: Time) -> Replica:
    def make(name: str, departed: tuple[str, ...] = ()) -> Leadership:
        return Leadership(database, time.hand, name, POLICY, departed=departed)

    return make


def since(services: Services) -> timedelta | None:
    """How long heartbeats have counted as silence."""
    now, term = services.database.read(lambda tx: (tx.now(), leader_sql.find_leader(tx)))
    assert term is not None
    return None if term.beats_since is None else now - term.beats_since


def test_claims_that_ran_out_in_an_outage_are_kept_for_their_workers(
    services: Services, time: Time, replica: Replica
) -> None:
    ann = replica("ann")
    ann.campaign()
    claim = a_claim(services)
    time.pass_(6 * MINUTE)  # nobody writes
    assert expire_claims(services) == 0, "nobody leads, so nobody knows what was promised"
    ann.campaign()
    assert expire_claims(services) == 0
    time.led(ann, 20 * SECOND)
    assert expire_claims(services) == 0
    beat(services, claim.worker_id, claim.key)
    time.led(ann, 20 * SECOND)
    assert expire_claims(services) == 0
    assert find_job(services, claim.key.job_id).status is JobStatus.CLAIMED


def test_a_worker_that_is_not_heard_again_was_interrupted_and_not_lost(
    services: Services, time: Time, replica: Replica
) -> None:
    ann = replica("ann")
    ann.campaign()
    claim = a_claim(services)
    for _ in range(3):  # two losses would make a dead letter
        time.pass_(6 * MINUTE)
        ann.campaign()
        time.led(ann, 30 * SECOND)
        assert expire_claims(services) == 1
        job = find_job(services, claim.key.job_id)
        assert (job.status, job.worker_losses) == (JobStatus.PENDING, 0)
        claimed(services, claim.worker_id)
    assert find_job(services, claim.key.job_id).interruptions == 3


def test_a_worker_that_dies_after_the_outage_is_lost(services: Services, time: Time, replica: Replica) -> None:
    ann = replica("ann")
    ann.campaign()
    claim = a_claim(services)
    time.pass_(MINUTE)
    ann.campaign()
    time.led(ann, 10 * SECOND)
    beat(services, claim.worker_id, claim.key)
    time.led(ann, 32 * SECOND)
    assert expire_claims(services) == 1
    assert find_job(services, claim.key.job_id).worker_losses == 1


def test_a_job_whose_deadline_passed_in_an_outage_may_still_say_how_it_ended(
    services: Services, time: Time, replica: Replica
) -> None:
    ann = replica("ann")
    ann.campaign()
    claim = a_claim(services, timeout=10 * SECOND)
    time.pass_(6 * MINUTE)
    ann.campaign()
    assert expire_claims(services) == 0
    beat(services, claim.worker_id, claim.key)
    assert find_job(services, claim.key.job_id).status is JobStatus.CLAIMED


def test_a_leader_without_a_break_changes_nothing(services: Services, time: Time, replica: Replica) -> None:
    """J4: a worker's death is noticed as soon as before."""
    ann = replica("ann")
    ann.campaign()
    claim = a_claim(services)
    time.led(ann, 32 * SECOND)
    assert since(services) is None
    assert expire_claims(services) == 1
    assert find_job(services, claim.key.job_id).worker_losses == 1


def test_the_only_replica_answers_for_claims_once_its_row_has_run_out(time: Time, replica: Replica) -> None:
    ann = replica("ann")
    ann.campaign()
    assert not ann.holds_claims
    time.pass_(POLICY.ttl - SECOND)
    assert not ann.holds_claims, "claims may still be judged"
    time.pass_(SECOND)
    assert ann.holds_claims
    time.pass_(POLICY.hold - POLICY.ttl - SECOND)
    assert ann.holds_claims
    time.pass_(SECOND)
    assert not ann.holds_claims, "who leads next waits no longer"


def test_one_of_several_replicas_answers_for_nothing(time: Time, replica: Replica) -> None:
    """Another may lead, and judge, while this one is cut off."""
    ann, bob = replica("ann"), replica("bob")
    ann.campaign()
    bob.campaign()
    ann.campaign()
    time.pass_(POLICY.ttl)
    assert not ann.holds_claims
    assert not bob.holds_claims


def test_a_replica_that_is_alone_again_answers_again(time: Time, replica: Replica) -> None:
    ann, bob = replica("ann"), replica("bob")
    ann.campaign()
    bob.campaign()
    time.led(ann, POLICY.ttl + 2 * SECOND)
    time.pass_(POLICY.ttl)
    assert not ann.holds_claims, "should it die, the other may be back"
    time.led(ann, LATELY)
    time.pass_(POLICY.ttl)
    assert ann.holds_claims


def test_who_follows_an_only_replica_waits_for_as_long_as_it_may_have_promised(
    services: Services, time: Time, replica: Replica
) -> None:
    """It may be cut off and not dead."""
    ann, bob = replica("ann"), replica("bob")
    ann.campaign()
    claim = a_claim(services)
    time.pass_(11 * SECOND)
    assert bob.campaign() is not None
    time.led(bob, 29 * MINUTE)
    assert expire_claims(services) == 0
    time.led(bob, 2 * MINUTE)
    assert expire_claims(services) == 1
    assert find_job(services, claim.key.job_id).interruptions == 1


@pytest.mark.parametrize("how", ["known", "departed", "resigned"])
def test_who_follows_one_that_promised_nothing_judges_soon(
    services: Services, time: Time, replica: Replica, how: str
) -> None:
    """J4: the death of a replica is no reason to leave jobs with dead workers."""
    ann = replica("ann")
    ann.campaign()
    a_claim(services)
    bob = replica("bob", departed=("ann", "who never led") if how == "departed" else ())
    if how == "known":
        bob.campaign()
        ann.campaign()
    if how == "resigned":
        ann.resign()
    time.pass_(11 * SECOND)
    assert bob.campaign() is not None
    time.led(bob, 32 * SECOND)
    assert expire_claims(services) == 1


def test_a_clean_handover_is_no_break(services: Services, time: Time, replica: Replica) -> None:
    ann, bob = replica("ann"), replica("bob")
    ann.campaign()
    time.led(ann, 20 * SECOND)
    ann.resign()
    time.pass_(SECOND)
    bob.campaign()
    assert since(services) is None


def test_a_replica_that_starts_again_under_its_old_name_begins_a_new_term(
    services: Services, time: Time, replica: Replica
) -> None:
    first = replica("ann").campaign()
    time.pass_(SECOND)
    again = replica("ann").campaign()
    assert first is not None
    assert again is not None
    assert again.epoch == first.epoch + 1
    assert since(services) == timedelta(0)


@dataclass
class World:
    """Replicas that lose and find the database, and a worker that keeps one claim by the rules of `Keeper`."""

    services: Services
    time: Time
    make: Replica
    chance: random.Random
    replicas: dict[str, Leadership] = field(default_factory=dict[str, Leadership])
    cut_off: set[str] = field(default_factory=set[str])
    home: str = "ann"
    """Where its heartbeats go."""
    claim: Claim | None = None
    kept_at: float = 0.0
    judged: int = 0

    extended: int = 0

    @property
    def runs(self) -> bool:
        return self.claim is not None and self.time.hand.now - self.kept_at < FENCE_S

    def step(self) -> None:
        """The usual things happen all the time, and now and then one that changes everything."""
        self.time.pass_(timedelta(seconds=self.chance.choice([1, 2, 3, 5])))
        if self.chance.random() < 0.12:
            self._surprise(self.chance.choice(["ann", "bob"]))
        if self.home in self.replicas and self.chance.random() < 0.8:
            self._beat(self.home)
        for name in sorted(self.replicas.keys() - self.cut_off):
            if self.chance.random() < 0.9:
                self.replicas[name].campaign()
            if self.chance.random() < 0.5:
                self._sweep()

    def _surprise(self, name: str) -> None:
        match self.chance.choice(["cut", "cut", "cut", "start", "start", "end", "move", "silence"]):
            case "cut":
                self.cut_off ^= {name}
            case "start" if name not in self.replicas:
                self.replicas[name] = self.make(name)
            case "end":
                self._end(name)
            case "move":
                self.home = name
            case "silence":
                self.home = "nowhere"
            case _:
                pass

    def _end(self, name: str) -> None:
        """Killed, or stopped in peace."""
        ended = self.replicas.pop(name, None)
        if ended is not None and name not in self.cut_off and self.chance.random() < 0.5:
            ended.resign()

    def _sweep(self) -> None:
        self.judged += expire_claims(self.services)
        if self.claim is not None and find_job(self.services, self.claim.key.job_id).status is JobStatus.PENDING:
            assert not self.runs, "the job was given away while its worker was at it"
            self.claim = None

    def _beat(self, name: str) -> None:
        if not self.runs or self.claim is None:
            return
        if name not in self.cut_off:
            beat(self.services, self.claim.worker_id, self.claim.key)
            self.kept_at = self.time.hand.now
        elif self.replicas[name].holds_claims:
            self.kept_at = self.time.hand.now
            self.extended += 1


@pytest.mark.parametrize("seed", [2, 3, 7])
def test_w5_no_claim_is_given_away_while_its_worker_may_be_at_it(
    services: Services, time: Time, database: Database, seed: int
) -> None:
    """Any order of outages, partitions, deaths, elections, sweeps and heartbeats."""
    chance = random.Random(seed)
    policy, numbers = LeaderPolicy(hold=MINUTE), count()

    def make(name: str) -> Leadership:
        return Leadership(database, time.hand, f"{name}-{next(numbers)}", policy)

    world = World(services, time, make, chance)
    for number in range(10):
        submit_job(services, NewJob(type="t"))
        world.claim = claimed(services, a_worker(services, f"w{number}"))
        world.kept_at, world.home = time.hand.now, chance.choice(["ann", "bob"])
        for _ in range(60):
            world.step()
    assert world.judged > 0
    assert world.extended > 0
