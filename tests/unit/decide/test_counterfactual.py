"""What would have to be different for one more worker."""

from decimal import Decimal

import pytest
from hypothesis import given

from herdsman.explain.rules import next_worker
from herdsman.fleet.actions import Code, SpawnWorker
from herdsman.fleet.decide import decide
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.snapshot import ListingFailed, Snapshot
from tests.support.fleets import NOW, POOL, a_snapshot, a_worker, minutes, seconds, snapshots


def test_the_length_of_the_queue_that_adds_a_worker_is_said() -> None:
    fleet = [a_worker("w1"), a_worker("w2")]
    asked = next_worker(a_snapshot(*fleet, queued=3, policy=FleetPolicy()), POOL)
    assert (asked.queued, asked.at_queued, asked.blocked_by) == (3, 7, None)


def test_a_pool_below_its_floor_gets_one_now() -> None:
    asked = next_worker(a_snapshot(policy=FleetPolicy(min_workers=1)), POOL)
    assert (asked.queued, asked.at_queued) == (0, 0)


def test_at_the_ceiling_no_queue_is_long_enough() -> None:
    asked = next_worker(a_snapshot(a_worker(), queued=1, policy=FleetPolicy(max_workers=1)), POOL)
    assert asked.at_queued is None
    assert asked.blocked_by is not None
    assert asked.blocked_by.code is Code.CEILING


def test_the_kill_switch_is_named() -> None:
    asked = next_worker(a_snapshot(queued=5, policy=FleetPolicy(min_workers=0, max_workers=0)), POOL)
    assert asked.at_queued is None
    assert asked.blocked_by is not None
    assert asked.blocked_by.code is Code.KILL_SWITCH


@pytest.mark.parametrize(
    ("pool", "code"),
    [
        ({"wait_until": NOW + minutes(1)}, Code.PROVIDER_WAITS),
        ({"stopped_by": "the key is wrong"}, Code.PROVIDER_REJECTED),
        ({"failures": 9, "starts": 9}, Code.BREAKER_OPEN),
        ({"instances": ListingFailed("it is away")}, Code.PARTIAL_SIGHT),
    ],
)
def test_what_is_in_the_way_is_named_with_the_queue_that_would_ask(pool: dict[str, object], code: Code) -> None:
    asked = next_worker(a_snapshot(a_worker(), queued=1, **pool), POOL)  # type: ignore[arg-type]
    assert asked.at_queued == 4
    assert asked.blocked_by is not None
    assert asked.blocked_by.code is code


def test_a_spent_budget_is_in_the_way() -> None:
    policy = FleetPolicy(min_workers=0, budget_per_day=Decimal(2))
    seen = a_snapshot(queued=1, policy=policy)
    asked = next_worker(Snapshot(now=NOW, pools=seen.pools, spent={"day": Decimal(3)}), POOL)
    assert asked.blocked_by is not None
    assert asked.blocked_by.code is Code.BUDGET_SPENT


def test_a_fleet_that_has_just_changed_keeps_its_size() -> None:
    policy = FleetPolicy(min_workers=0, scaling="workload")
    asked = next_worker(a_snapshot(queued=4, policy=policy, last_scaled_at=NOW - seconds(1)), POOL)
    assert asked.at_queued == 4
    assert asked.blocked_by is not None
    assert asked.blocked_by.code is Code.ENOUGH


@given(snapshots())
def test_what_is_said_is_what_would_be_decided(seen: Snapshot) -> None:
    """Where nothing is in the way, a cycle with that queue spawns, and with this one only if it is as long."""
    asked = next_worker(seen, POOL)
    if asked.blocked_by is None and asked.at_queued is not None:
        assert spawns(seen) == (asked.at_queued <= asked.queued)


def spawns(seen: Snapshot) -> bool:
    return any(isinstance(action, SpawnWorker) for action in decide(seen).actions)
