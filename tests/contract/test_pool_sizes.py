"""P1: how large pools are, and how many there are."""

from dataclasses import replace
from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import Conflict
from herdsman.fleet import sql as fleet_sql
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.sql import Intent
from herdsman.ids import PoolId, WorkerId
from herdsman.pools.commands import drain_pool, find_pool
from herdsman.pools.rules import PoolLimits, PoolRules, Schedule, ServedBy, Sizes, Window
from herdsman.states import PoolStatus, WorkerStatus
from tests.support.builders import a_job, a_worker
from tests.support.control_loop import FleetHarness
from tests.support.databases import MovingClock, every_database, one_database
from tests.support.pools import LLM, a_pool, alive, cycles, rented, state

pytestmark = one_database


def test_a_pool_that_keeps_workers_by_its_rules_outlives_its_hold(pool_loop: FleetHarness) -> None:
    services = pool_loop.services
    pool_loop.with_policy(idle_timeout=timedelta(seconds=30))
    a_pool(services, hold=timedelta(seconds=60), desired_workers=3, rules=PoolRules(min_workers=1))
    cycles(pool_loop, 2)
    assert rented(pool_loop) == 3
    cycles(pool_loop, 12)
    assert (state(services), rented(pool_loop)) == (PoolStatus.RUNNING, 1)


def test_the_ceiling_of_the_settings_holds_for_all_pools_together(pool_loop: FleetHarness) -> None:
    """P1: looked at in the transaction that takes the place."""
    pool_loop.with_policy(max_workers=3, min_workers=2)
    a_pool(pool_loop.services, "one", desired_workers=2)
    a_pool(pool_loop.services, "two", desired_workers=2)
    cycles(pool_loop, 6)
    assert pool_loop.fake.ledger.most_alive == 3


def test_a_queue_grows_a_pool_up_to_its_own_ceiling(pool_loop: FleetHarness) -> None:
    services = pool_loop.services
    a_pool(services, desired_workers=1, rules=PoolRules(max_workers=3))
    for _ in range(50):
        a_job(services, pool=LLM)
    cycles(pool_loop, 5)
    assert len(alive(services)) == 3


def test_hours_of_the_week_change_the_size(pool_loop: FleetHarness, clock: MovingClock) -> None:
    window = Window(days=frozenset(range(7)), begin=8 * 60, end=18 * 60, sizes=Sizes(least=2, most=2))
    rules = PoolRules(schedule=Schedule(windows=(window,)), idle_timeout=timedelta(seconds=30))
    now = pool_loop.services.database.read(lambda tx: tx.now())
    clock.advance((now.replace(hour=9, minute=0) - now) % timedelta(days=1))
    a_pool(pool_loop.services, rules=rules)
    cycles(pool_loop, 3)
    assert rented(pool_loop) == 2
    clock.advance(timedelta(hours=10))
    cycles(pool_loop, 8)
    assert (state(pool_loop.services), rented(pool_loop)) == (PoolStatus.RUNNING, 0)


def test_workers_that_have_lived_long_enough_are_replaced_one_at_a_time(pool_loop: FleetHarness) -> None:
    services = pool_loop.services
    rules = PoolRules(min_workers=2, max_workers=3, max_lifetime=timedelta(minutes=3))
    a_pool(services, rules=rules)
    cycles(pool_loop, 3)
    first = set(alive(services))
    replica, fewest = pool_loop.replica(), 2
    for _ in range(20):
        pool_loop.cycle(replica)
        there = find_pool(services, LLM).workers
        fewest = min(fewest, there.get(WorkerStatus.ACTIVE, 0))
    assert fewest == 1
    assert not first & set(alive(services))


def test_a_pool_that_others_serve_is_only_watched(pool_loop: FleetHarness) -> None:
    services = pool_loop.services
    a_pool(services, served_by=ServedBy.HAND, hold=timedelta(seconds=60))
    for _ in range(20):
        a_job(services, pool=LLM)
    cycles(pool_loop, 2)
    assert (state(services), rented(pool_loop)) == (PoolStatus.STARTING, 0)
    a_worker(services, "mine", pool=LLM)
    cycles(pool_loop, 6)
    assert (state(services), alive(services)) == (PoolStatus.RUNNING, ["mine"])
    drain_pool(services, LLM)
    cycles(pool_loop, 2)
    assert state(services) is PoolStatus.STOPPED


def test_a_full_house_makes_room_by_the_oldest_that_is_idle(pool_loop: FleetHarness) -> None:
    limits = PoolLimits(most=2, min_warm=1, idle_timeout=timedelta(seconds=45))
    services = replace(pool_loop.services, pools=limits)
    a_pool(services, "first", desired_workers=1)
    cycles(pool_loop, 1)
    a_pool(services, "second", desired_workers=1)
    with pytest.raises(Conflict, match="GPU_POOL_MAX_TOTAL"):
        a_pool(services, "third", desired_workers=1)
    cycles(pool_loop, 3)
    a_job(services, pool="first")
    a_pool(services, "third", desired_workers=1)
    assert state(services, "first") is PoolStatus.RUNNING, "a job waits for it"
    assert state(services, "second") is PoolStatus.DRAINING
    with pytest.raises(Conflict):
        a_pool(replace(services, pools=replace(limits, min_warm=2)), "fourth", desired_workers=1)


@every_database
def test_the_last_place_of_all_pools_is_given_once(services: Services) -> None:
    """P1: whatever was planned, the transaction that takes the place looks at all of them."""
    policy = FleetPolicy(max_workers=5)
    for name in ("one", "two"):
        a_pool(services, name)

    def intend(pool: str, number: int) -> str:
        intent = Intent(
            worker_id=WorkerId(f"w{number}"), instance_name=f"i{number}", pool=PoolId(pool), provider="fake"
        )
        return services.database.transact(lambda tx: fleet_sql.intend(tx, intent, policy, 2))

    assert [intend("one", 1), intend("default", 2)] == ["", ""]
    assert "all pools together" in intend("two", 3)
    assert len(alive(services, "two")) == 0


def test_a_worker_that_was_started_by_hand_takes_no_place_of_ours(services: Services) -> None:
    a_pool(services, "one")
    a_worker(services, "mine", pool="one")
    intent = Intent(worker_id=WorkerId("w1"), instance_name="i1", pool=PoolId("one"), provider="fake")
    assert services.database.transact(lambda tx: fleet_sql.intend(tx, intent, FleetPolicy(), 1)) == ""
