"""A shadow policy in a whole control loop, on every database: recorded, summed up, and never acted on."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from herdsman.context import Services
from herdsman.fleet import history_sql, snapshot_sql
from herdsman.fleet.commands import find_decision, list_decisions, report
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.reconcile import Reconciler
from herdsman.fleet.scaling import OURS, Load, Wanted
from herdsman.ids import DEFAULT_POOL
from tests.support.builders import a_job
from tests.support.control_loop import FleetHarness, a_harness
from tests.support.databases import MovingClock, every_database, one_database

pytestmark = one_database

HALF_A_MINUTE = timedelta(seconds=30)


@pytest.fixture
def harness(services: Services, clock: MovingClock) -> Iterator[FleetHarness]:
    with a_harness(services, clock) as harness:
        harness.with_policy(min_workers=1, max_workers=8, jobs_per_worker=3)
        yield harness


def greedy(_load: Load, policy: FleetPolicy) -> Wanted:
    return Wanted(policy.max_workers, policy.max_workers, {}, "a shadow wants\x00all")


def raising(_load: Load, _policy: FleetPolicy) -> Wanted:
    raise RuntimeError("this plugin is broken")


def shadowed(harness: FleetHarness, name: str, **changed: Any) -> Reconciler:
    harness.with_policy(shadow=name)
    replica = harness.replica()
    plugins = {**OURS, "greedy": greedy, "raising": raising}
    return replace(replica, observer=replace(replica.observer, scaling=plugins), **changed)


def test_a_difference_is_recorded_and_nothing_of_it_is_done(harness: FleetHarness) -> None:
    replica = shadowed(harness, "greedy")
    for _ in range(4):
        harness.cycle(replica)
    assert harness.fake.ledger.most_alive == 1, "the shadow wanted eight"
    (newest, *_) = list_decisions(harness.services, after=None, limit=10).cycles
    (noted,) = newest.shadow
    assert noted.live is not None
    assert noted.shadow is not None
    assert (noted.pool, noted.policy, noted.differs) == (DEFAULT_POOL, "greedy", True)
    assert (noted.live.policy, noted.live.workers, noted.live.spawns) == ("threshold", 1, 0)
    assert (noted.shadow.workers, noted.shadow.spawns) == (8, 7)
    assert noted.shadow.reason == "asks for 7: a shadow wants all"
    assert find_decision(harness.services, newest.cycle).shadow == newest.shadow


@every_database
def test_a_shadow_that_raises_is_recorded_and_the_cycle_goes_on(harness: FleetHarness) -> None:
    replica = shadowed(harness, "raising")
    ran = harness.cycle(replica)
    assert ran.complete
    assert len(harness.fake.ledger.alive) == 1
    (newest,) = list_decisions(harness.services, after=None, limit=10).cycles
    assert [each.error for each in newest.shadow] == ["RuntimeError: this plugin is broken"]
    assert newest.actions[0].action == "SpawnWorker"
    told = report(harness.services, 24)
    assert (told.cycles, told.differed, told.failed) == (1, 0, 1)
    assert replica.shadows == {"failed": 1}


def test_differences_are_summed_up(harness: FleetHarness) -> None:
    """Seven workers more in each of four cycles, which lie half a minute apart."""
    harness.cycle(harness.replica())
    replica = shadowed(harness, "greedy")
    for _ in range(4):
        harness.cycle(replica, later=HALF_A_MINUTE)
    told = report(harness.services, 24)
    assert (told.cycles, told.differed, told.failed, told.truncated) == (4, 4, 0, False)
    (pool,) = told.pools
    assert (pool.pool, pool.policy, pool.cycles, pool.differed) == (DEFAULT_POOL, "greedy", 4, 4)
    assert pool.worker_hours_more == pytest.approx(7 * 4 * 30 / 3600, abs=0.02)
    assert pool.worker_hours_less == 0
    assert [each.cycle for each in told.last] == sorted((each.cycle for each in told.last), reverse=True)
    assert told.since == told.last[-1].at
    assert replica.shadows == {"differs": 4}


def test_a_pause_of_the_whole_control_plane_is_not_counted_as_hours(harness: FleetHarness) -> None:
    harness.cycle(shadowed(harness, "greedy"), later=timedelta(hours=5))
    (pool,) = report(harness.services, 24).pools
    assert pool.worker_hours_more == pytest.approx(7 * 5 / 60, abs=0.01)


@every_database
def test_only_the_hours_that_are_asked_for_are_looked_at_in_pages(
    harness: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_sql, "BATCH", 2)
    replica = shadowed(harness, "greedy")
    harness.cycle(replica, later=timedelta(hours=3))
    for _ in range(5):
        harness.cycle(replica)
    assert report(harness.services, 1).cycles == 5
    assert report(harness.services, 24).cycles == 6


def test_where_both_agree_nothing_is_listed_but_the_look_is_counted(harness: FleetHarness) -> None:
    replica = shadowed(harness, "workload")
    for _ in range(3):
        harness.cycle(replica)
    assert all(each.shadow == () for each in list_decisions(harness.services, after=None, limit=10).cycles)
    assert list_decisions(harness.services, after=None, limit=10, shadow=True).cycles == ()
    told = report(harness.services, 24)
    assert (told.cycles, told.differed, told.last) == (3, 0, ())
    assert replica.shadows == {"agrees": 3}


def test_only_the_cycles_that_differ_can_be_listed(harness: FleetHarness) -> None:
    harness.cycle(harness.replica())
    harness.cycle(shadowed(harness, "greedy"))
    (found,) = list_decisions(harness.services, after=None, limit=10, shadow=True).cycles
    assert found.shadow
    assert list_decisions(harness.services, after=None, limit=10, pool="other", shadow=True).cycles == ()


def test_without_a_shadow_nothing_is_recorded_of_one(harness: FleetHarness) -> None:
    ran = harness.cycle(harness.replica())
    assert "shadow" not in ran.summary()
    assert report(harness.services, 24).since is None


def test_safe_mode_tells_it_and_records_nothing(harness: FleetHarness) -> None:
    replica = shadowed(harness, "greedy", only_plans=True)
    ran = harness.cycle(replica)
    (told,) = ran.shadow
    assert told.differs
    assert harness.fake.ledger.most_alive == 0
    assert list_decisions(harness.services, after=None, limit=10).cycles == ()


@every_database
def test_demand_is_counted_for_a_shadow_that_forecasts(services: Services) -> None:
    a_job(services)

    def seen(shadow: str) -> object:
        rules = {DEFAULT_POOL: FleetPolicy(shadow=shadow)}
        return services.database.read(lambda tx: snapshot_sql.read_pools(tx, rules))[0].demand

    assert seen("workload") is None
    assert seen("adaptive") is not None
