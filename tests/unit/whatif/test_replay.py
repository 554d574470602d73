"""Virtual time: the jobs of a trace on machines that the real judgement asks for and lets go."""

import math
import time
from datetime import timedelta

import pytest

from herdsman.errors import InvalidRequest
from herdsman.fleet.model import FleetPolicy
from herdsman.whatif.machines import Boots, World
from herdsman.whatif.replay import PolicyController, Setup, replay
from herdsman.whatif.trace import Trace, made
from tests.support.amounts import SOAK
from tests.support.traces import daily, in_batches, on_and_off, steady

START = Boots(mean_s=60)


def policy(scaling: str = "threshold", least: int = 1, most: int = 10, target: float = 120) -> FleetPolicy:
    return FleetPolicy(min_workers=least, max_workers=most, scaling=scaling, target_wait=timedelta(seconds=target))


def test_a_single_worker_serves_in_order_and_everything_is_paid_for() -> None:
    """One worker asked for at 0 is there at 60: three jobs of 10 s begin at 60, 70 and 80."""
    found = replay(made("three", [(0, 10), (0, 10), (5, 10)]), Setup(policy=policy(most=1), boots=START, price=2))
    assert (found.wait_p50_s, found.wait_max_s, found.spawns) == (70, 75, 1)
    assert found.gpu_hours == pytest.approx(90 / 3600)
    assert found.cost_usd == pytest.approx(0.05)
    assert found.utilisation == pytest.approx(30 / 90)


def test_no_job_is_lost_and_none_begins_before_it_comes() -> None:
    trace = on_and_off(300, hours=6, service_s=40)
    world = World(trace, Boots(mean_s=60, spread_s=20), seed=3)
    controller, at = PolicyController(world, policy(least=0)), 0.0
    while not world.over:
        world.advance(at)
        controller.cycle()
        at += 30
        assert len(world.machines) <= 10
    assert world.finished == world.served == len(trace)
    assert min(world.waits) >= 0


def test_the_oldest_of_the_idle_gets_the_job_so_that_the_others_can_go() -> None:
    world = World(made("one at a time", [(0, 5), *((100 + 10 * each, 5) for each in range(20))]), START)
    machines = [world.spawn() for _ in range(3)]
    world.advance(250)
    assert [each.done for each in machines] == [16, 0, 0]
    world.end(machines[0])
    world.advance(400)
    assert [each.done for each in machines] == [16, 5, 0]
    assert machines[2].free_since == START.mean_s


@pytest.mark.parametrize("scaling", ["threshold", "workload", "adaptive"])
def test_skipping_quiet_stretches_changes_nothing(scaling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = on_and_off(200, hours=8, service_s=40, on_s=300, off_s=5400)
    setup = Setup(policy=policy(scaling), boots=Boots(mean_s=60, spread_s=20))
    quick = replay(trace, setup)
    monkeypatch.setattr(PolicyController, "quiet", False)
    slow = replay(trace, setup)
    assert slow.cycles >= quick.cycles
    assert (slow.gpu_hours, slow.wait_p99_s, slow.spawns) == (quick.gpu_hours, quick.wait_p99_s, quick.spawns)


def test_the_same_seed_gives_the_same_outcome_and_another_one_another() -> None:
    trace = steady(100, hours=4, service_s=60)
    boots = Boots(mean_s=60, spread_s=30, failing=0.2)

    def run(seed: int) -> object:
        return replay(trace, Setup(policy=policy(), boots=boots, seed=seed))

    assert run(1) == run(1) != run(2)


def test_starts_that_fail_are_found_out_and_replaced() -> None:
    trace = steady(100, hours=4, service_s=60)
    found = replay(trace, Setup(policy=policy(), boots=Boots(mean_s=60, failing=0.4), seed=1))
    assert found.unfinished == 0
    assert found.failed_spawns > 0
    assert found.spawns > found.failed_spawns


def test_jobs_that_nobody_can_ever_run_are_told_and_not_waited_for() -> None:
    found = replay(made("one", [(0, 10)]), Setup(policy=policy(), boots=Boots(failing=1.0), poll_s=600))
    assert found.unfinished == 1
    with pytest.raises(InvalidRequest, match="MAX_ACTIVE_GPUS is 0"):
        replay(made("one", [(0, 10)]), Setup(policy=policy(least=0, most=0)))


def test_the_ceiling_is_counted_when_it_is_in_the_way() -> None:
    crowd = made("crowd", [(0, 60)] * 100)
    assert replay(crowd, Setup(policy=policy(most=2), boots=START)).cap_hits > 0
    assert replay(crowd, Setup(policy=policy(most=200), boots=START)).cap_hits == 0


@pytest.mark.parametrize("target", [150, 300, 600] if SOAK else [300])
@pytest.mark.parametrize(
    "trace",
    [
        daily(100, days=2, service_s=180, seed=11),
        on_and_off(300, hours=24, service_s=90, seed=12),
        in_batches(2, hours=48, batch=10, service_s=240, seed=13),
        steady(15, hours=48, service_s=900, seed=14),
    ],
    ids=lambda trace: trace.name,
)
def test_adaptive_keeps_a_target_that_starts_allow(trace: Trace, target: float) -> None:
    """Nine of ten jobs at least, and 95 of 100 nearly: seeds that nothing was fitted to."""
    setup = Setup(policy=policy("adaptive", most=60, target=target), boots=Boots(mean_s=90, spread_s=15))
    found = replay(trace, setup)
    assert found.within_target >= 0.9
    assert found.wait_p95_s <= 1.25 * target


def test_a_longer_target_costs_less() -> None:
    trace = daily(150, days=1, service_s=180, seed=21)
    costs = [
        replay(trace, Setup(policy=policy("adaptive", most=60, target=target), boots=Boots())).gpu_hours
        for target in (30, 300, 900)
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.85 * costs[0]


def test_a_hundred_thousand_jobs_take_seconds() -> None:
    """A million must take less than three minutes; a tenth of them, a tenth of that."""
    trace = steady(20_000, hours=5, service_s=8)
    begun = time.monotonic()
    found = replay(trace, Setup(policy=policy("adaptive", most=80), boots=Boots()))
    assert found.unfinished == 0
    assert math.isclose(found.jobs, 100_000, rel_tol=0.05)
    assert time.monotonic() - begun < 18
