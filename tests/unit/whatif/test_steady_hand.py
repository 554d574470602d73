"""The policy that aims at a wait, over time: it settles on a load that stays the same, and learns from late jobs."""

from datetime import timedelta

import pytest

from herdsman.fleet.model import FleetPolicy
from herdsman.whatif.machines import Boots
from herdsman.whatif.replay import Setup, replay
from herdsman.whatif.trace import Trace, made
from tests.support.traces import steady


def setup(boots: Boots, *, target: float = 120, poll: float = 30) -> Setup:
    rules = FleetPolicy(min_workers=0, max_workers=60, scaling="adaptive", target_wait=timedelta(seconds=target))
    return Setup(policy=rules, boots=boots, poll_s=poll)


def evenly(every_s: float, service_s: float, hours: float) -> Trace:
    return made("evenly", [(every_s * each, service_s) for each in range(int(hours * 3600 / every_s))])


@pytest.mark.parametrize("boot", [30.0, 90.0, 300.0])
def test_a_load_that_stays_the_same_is_not_answered_with_coming_and_going(boot: float) -> None:
    """Ten are always at work; once the first backlog is done, hardly anybody is started again in six hours."""
    found = replay(evenly(30, 300, 6), setup(Boots(mean_s=boot)))
    assert found.spawns <= found.peak_workers + 5
    assert found.wait_p95_s <= 120


def test_late_starts_are_made_up_for_by_asking_for_more() -> None:
    """One start in five takes twice as long as jobs may wait: without more of them, one job in five would be late."""
    boots = Boots(sample_s=(60, 60, 60, 60, 240))
    found = replay(steady(12, hours=60, service_s=600, seed=31), setup(boots))
    assert found.within_target >= 0.94


def test_failing_starts_are_learned_and_reckoned_with() -> None:
    boots = Boots(mean_s=60, spread_s=10, failing=0.3)
    found = replay(steady(60, hours=24, service_s=300, seed=32), setup(boots))
    assert found.wait_p95_s <= 120


def test_who_looks_more_often_pays_no_more_for_the_same_target() -> None:
    trace, boots = steady(30, hours=24, service_s=400, seed=33), Boots(mean_s=90, spread_s=20)
    seldom, often = (replay(trace, setup(boots, poll=poll)) for poll in (30, 10))
    assert often.wait_p95_s <= 120
    assert often.gpu_hours < seldom.gpu_hours
