"""How many workers there should be."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from herdsman.fleet.actions import DrainIdleWorker, EndInstance, Note, SpawnWorker
from herdsman.fleet.decide import decide
from herdsman.fleet.model import FleetPolicy, InstanceStatus
from herdsman.fleet.scaling import Load, Wanted, bounded, calculate_workers_needed, should_scale_up, workload
from herdsman.fleet.snapshot import ListingFailed, Snapshot
from herdsman.states import WorkerStatus
from tests.support.fleets import NOW, a_job, a_snapshot, a_worker, an_instance, minutes, seconds

USUAL = FleetPolicy()


def spawns(seen: Snapshot) -> int:
    return sum(1 for action in decide(seen).actions if isinstance(action, SpawnWorker))


def fleet(active: int, *, spawning: int = 0, busy: int = 0, queued: int = 0, policy: FleetPolicy = USUAL) -> Snapshot:
    workers = [a_worker(f"a{index}", job=a_job(f"j{index}") if index < busy else None) for index in range(active)]
    starting = [
        a_worker(f"s{index}", WorkerStatus.SPAWNING, age=minutes(1), beat_age=None) for index in range(spawning)
    ]
    return a_snapshot(*workers, *starting, queued=queued, policy=policy)


@pytest.mark.parametrize(
    ("queued", "active", "expected"),
    [(0, 0, False), (1, 0, True), (6, 2, False), (7, 2, True), (30, 10, False)],
)
def test_should_scale_up(queued: int, active: int, expected: bool) -> None:
    assert should_scale_up(queued, active) is expected


@pytest.mark.parametrize(
    ("queued", "active", "floor", "expected"),
    [
        (7, 2, 2, 1),
        (1, 0, 2, 2),
        (1, 0, 0, 1),  # a fleet may grow from nothing
        (1000, 0, 2, 10),
        (0, 1, 2, 1),
        (3, 5, 2, 0),
    ],
)
def test_calculate_workers_needed(queued: int, active: int, floor: int, expected: int) -> None:
    assert calculate_workers_needed(queued, active, FleetPolicy(min_workers=floor)) == expected


@pytest.mark.parametrize(
    ("active", "spawning", "queued", "expected"),
    [(2, 0, 7, 1), (2, 0, 6, 0), (0, 0, 1000, 10), (2, 2, 9, 0), (1, 0, 0, 1), (0, 0, 0, 2)],
)
def test_the_default_policy(active: int, spawning: int, queued: int, expected: int) -> None:
    """The floor is refilled whatever the queue."""
    assert spawns(fleet(active, spawning=spawning, queued=queued)) == expected


def test_everything_that_may_be_alive_counts_towards_the_ceiling() -> None:
    """P1: a failed worker's machine is there until it is seen to be gone."""
    dying = [a_worker(f"e{index}", WorkerStatus.ERROR) for index in range(9)]
    assert spawns(a_snapshot(*dying, queued=1000, policy=USUAL)) == 1


def test_a_ceiling_of_nothing_is_a_kill_switch() -> None:
    policy = FleetPolicy(min_workers=2, max_workers=0)
    assert spawns(a_snapshot(queued=50, policy=policy)) == 0


def test_busy_workers_cannot_take_what_is_queued() -> None:
    """Ten busy workers and 29 queued jobs is a shortage for `workload`, and none for `threshold`."""
    policy = FleetPolicy(max_workers=40)
    assert spawns(fleet(10, busy=10, queued=29, policy=policy)) == 0
    counting = FleetPolicy(max_workers=40, scaling="workload")
    assert spawns(fleet(10, busy=10, queued=29, policy=counting)) == 10


def test_the_workload_policy_keeps_its_size_for_a_while() -> None:
    policy = FleetPolicy(scaling="workload", min_workers=0)
    just_scaled = Load(queued=30, active=5, busy=5, since_scaled=seconds(10))
    assert workload(just_scaled, policy).grow_to <= 5
    assert workload(Load(queued=0, active=5, since_scaled=seconds(10)), policy).keep == 5
    assert workload(Load(queued=0, active=5, since_scaled=minutes(5)), policy).keep == 0


def test_an_idle_buffer_is_kept_warm() -> None:
    policy = FleetPolicy(scaling="workload", min_workers=0, idle_workers=2)
    assert spawns(fleet(3, busy=3, policy=policy)) == 2


def test_idle_workers_beyond_the_floor_are_drained_longest_idle_first() -> None:
    """Four idle ones and a floor of two: exactly two go."""
    idle = [a_worker(f"w{index}", idle_since=NOW - minutes(6 + index)) for index in range(4)]
    drained = [
        action.worker_id
        for action in decide(a_snapshot(*idle, policy=USUAL)).actions
        if isinstance(action, DrainIdleWorker)
    ]
    assert drained == ["w3", "w2"]


def test_a_worker_is_idle_since_its_last_job_not_since_its_birth() -> None:
    policy = FleetPolicy(min_workers=0)
    productive = a_worker(age=minutes(600), idle_since=NOW - seconds(5))
    assert decide(a_snapshot(productive, policy=policy)).actions == ()
    lazy = a_worker(age=minutes(600), beat_age=seconds(1), idle_since=NOW - minutes(6))
    assert isinstance(decide(a_snapshot(lazy, policy=policy)).actions[0], DrainIdleWorker)


def test_over_the_ceiling_idle_workers_go_sooner() -> None:
    policy = FleetPolicy(min_workers=0, max_workers=1)
    idle = [a_worker(f"w{index}", idle_since=NOW - minutes(1)) for index in range(2)]
    actions = decide(a_snapshot(*idle, policy=policy)).actions
    assert sum(1 for action in actions if isinstance(action, DrainIdleWorker)) == 1


def test_a_draining_worker_is_ended_when_its_job_is_or_its_grace() -> None:
    """P8"""
    draining = WorkerStatus.TERMINATING
    for worker, ended in (
        (a_worker(status=draining, age=minutes(1)), True),
        (a_worker(status=draining, age=minutes(1), job=a_job()), False),
        (a_worker(status=draining, age=minutes(11), job=a_job()), True),
    ):
        actions = decide(a_snapshot(worker)).actions
        assert any(isinstance(action, EndInstance) for action in actions) is ended


@pytest.mark.parametrize(
    ("pool", "code"),
    [
        ({"failures": 5, "starts": 5}, "BREAKER_OPEN"),
        ({"wait_until": NOW + minutes(1)}, "PROVIDER_WAITS"),
        ({"stopped_by": "the key was refused"}, "PROVIDER_REJECTED"),
    ],
)
def test_what_forbids_a_spawn_is_said(pool: dict[str, Any], code: str) -> None:
    (action,) = decide(a_snapshot(queued=5, policy=USUAL, **pool)).actions
    assert isinstance(action, Note)
    assert action.reason.code == code


def test_a_spent_budget_blocks_spawns_and_no_budget_does_not() -> None:
    limited = FleetPolicy(budget_per_hour=Decimal(5))
    for policy, blocked in ((limited, True), (USUAL, False)):
        seen = a_snapshot(queued=5, policy=policy)
        spent = Snapshot(now=NOW, pools=seen.pools, workers=(), instances=(), spent={"hour": Decimal(6)})
        assert (spawns(spent) == 0) is blocked


def test_a_few_failures_are_no_reason_to_stop() -> None:
    assert spawns(a_snapshot(queued=5, policy=USUAL, failures=4, starts=4)) > 0
    assert spawns(a_snapshot(queued=5, policy=USUAL, failures=4, starts=5)) > 0


def test_who_cannot_see_the_provider_spawns_nothing() -> None:
    (action,) = decide(a_snapshot(queued=5, policy=USUAL, instances=ListingFailed("timeout"))).actions
    assert isinstance(action, Note)
    assert action.reason.code == "PARTIAL_SIGHT"


def test_a_new_worker_has_its_time_and_one_started_by_hand_is_left_alone() -> None:
    idle: dict[str, Any] = {"idle_since": NOW - minutes(10)}
    old, new = a_worker("old", **idle), a_worker("new", age=seconds(59), **idle)
    mine = a_worker("mine", instance_name=None, instance_ref=None, **idle)
    nothing = FleetPolicy(min_workers=0)
    actions = decide(a_snapshot(old, new, mine, policy=nothing)).actions
    assert [each.worker_id for each in actions if isinstance(each, DrainIdleWorker)] == ["old"]


@pytest.mark.parametrize(("factor", "expected"), [(1.0, 2), (1.5, 4), (0.5, 0), (9.0, 8)])
def test_what_is_wanted_is_multiplied_when_the_pool_grows(factor: float, expected: int) -> None:
    """Twelve jobs want four workers, and two are there; the ceiling and the floor hold whatever the factor."""
    assert spawns(fleet(2, queued=12, policy=FleetPolicy(grow_by=factor))) == expected


def test_the_floor_is_filled_whatever_the_multiplier() -> None:
    assert spawns(fleet(0, policy=FleetPolicy(grow_by=0.1))) == 2


@pytest.mark.parametrize(
    ("factor", "drained"),
    [
        (1.0, 16),
        (1.5, 14),  # one and a half times the four that the queue wants
        (0.5, 16),  # two would be asked for again at once
    ],
)
def test_what_is_wanted_is_multiplied_when_the_pool_shrinks(factor: float, drained: int) -> None:
    policy = FleetPolicy(min_workers=0, max_workers=40, shrink_by=factor)
    idle = [a_worker(f"w{index}", idle_since=NOW - minutes(6)) for index in range(20)]
    actions = decide(a_snapshot(*idle, queued=12, policy=policy)).actions
    assert sum(1 for each in actions if isinstance(each, DrainIdleWorker)) == drained
    assert not any(isinstance(each, SpawnWorker) for each in actions)


def keeps_twice(load: Load, policy: FleetPolicy) -> Wanted:
    return Wanted(grow_to=load.queued, keep=bounded(2 * load.queued, policy))


def test_a_policy_that_keeps_more_than_it_would_ask_for_shrinks_further() -> None:
    policy = FleetPolicy(min_workers=0, max_workers=40, scaling="twice", shrink_by=0.7)
    idle = [a_worker(f"w{index}", idle_since=NOW - minutes(6)) for index in range(20)]
    seen = replace(a_snapshot(*idle, queued=5, policy=policy), policies={"twice": keeps_twice})
    assert sum(1 for each in decide(seen).actions if isinstance(each, DrainIdleWorker)) == 13


@pytest.mark.parametrize(
    ("state", "age", "expected"),
    [
        (InstanceStatus.STARTING, minutes(2), 0),
        (InstanceStatus.STARTING, minutes(4), 1),
        (InstanceStatus.RUNNING, minutes(4), 0),
    ],
)
def test_a_machine_that_does_not_run_in_time_is_waited_for_no_longer(
    state: InstanceStatus, age: timedelta, expected: int
) -> None:
    """SPAWNING_GRACE_PERIOD_SEC"""
    worker = a_worker(status=WorkerStatus.SPAWNING, age=age, beat_age=None, idle_since=None)
    policy = FleetPolicy(min_workers=0)
    seen = a_snapshot(worker, queued=3, policy=policy, instances=(an_instance(worker, state),))
    assert spawns(seen) == expected


def test_a_creation_in_doubt_is_waited_for() -> None:
    """P2: it may be there, and is looked for by its name; nobody is asked for in its place meanwhile."""
    lost = a_worker(status=WorkerStatus.SPAWNING, age=minutes(4), beat_age=None, instance_ref=None, idle_since=None)
    assert spawns(a_snapshot(lost, queued=3, policy=FleetPolicy(min_workers=0), instances=())) == 0


def ends(seen: Snapshot) -> bool:
    return any(isinstance(each, EndInstance) for each in decide(seen).actions)


def test_the_machine_of_a_failed_worker_is_kept_for_a_look_while_nobody_needs_its_place() -> None:
    """ERROR_CLEANUP_GRACE_PERIOD_SEC"""
    kept = FleetPolicy(min_workers=0, max_workers=1, error_grace=minutes(10))
    failed = a_worker(status=WorkerStatus.ERROR, age=minutes(9), error_code="STUCK_TASK")
    assert not ends(a_snapshot(failed, policy=kept))
    assert ends(a_snapshot(failed, policy=FleetPolicy(min_workers=0)))
    assert ends(a_snapshot(failed, queued=1, policy=kept))
    assert not ends(a_snapshot(failed, queued=1, policy=replace(kept, max_workers=2)))
    assert ends(a_snapshot(failed, policy=replace(kept, min_workers=1)))
    assert ends(a_snapshot(a_worker(status=WorkerStatus.ERROR, age=minutes(10), error_code="STUCK_TASK"), policy=kept))


@pytest.mark.parametrize("code", [None, "BY_HAND", "POOL_CLOSED"])
def test_one_that_did_not_fail_is_not_kept(code: str | None) -> None:
    kept = FleetPolicy(min_workers=0, error_grace=minutes(10))
    assert ends(a_snapshot(a_worker(status=WorkerStatus.ERROR, age=minutes(1), error_code=code), policy=kept))
