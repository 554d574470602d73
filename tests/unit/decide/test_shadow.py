"""A second policy beside the one that decides: it is asked, it is never obeyed, and it can break nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.fleet.decide import LONGEST, Compared, compare, decide
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.recording import shadow_documents, shadow_outcome
from herdsman.fleet.scaling import OURS, RECENT, Demand, Load, ScalingPolicy, Wanted
from herdsman.fleet.snapshot import PoolSnapshot, Snapshot
from herdsman.ids import PoolId
from tests.support.fleets import NOW, POOL, a_job, a_snapshot, a_worker, minutes, snapshots

KNOWN = Demand(arrivals=(0,) * RECENT, service_s=(60.0,) * 20, boots_s=(90.0,) * 5)
SHADOWED = FleetPolicy(min_workers=0, scaling="threshold", shadow="workload")


def compared(seen: Snapshot) -> tuple[Compared, ...]:
    return compare(seen, decide(seen))


def with_policy(seen: Snapshot, name: str, policy: Callable[[Load, FleetPolicy], object]) -> Snapshot:
    """A plugin may answer anything."""
    return replace(seen, policies={**OURS, name: cast("ScalingPolicy", policy)})


def test_a_difference_is_told_with_both_sentences() -> None:
    """Two wait and both workers are at work: `threshold` waits, `workload` counts the work."""
    workers = (a_worker("w1", job=a_job("a")), a_worker("w2", job=a_job("b")))
    (found,) = compared(a_snapshot(*workers, queued=2, policy=SHADOWED))
    assert found.differs
    assert (found.pool, found.policy, found.error) == (POOL, "workload", "")
    live, shadow = found.live, found.shadow
    assert shadow is not None
    assert (live.policy, live.workers, live.spawns, live.drains) == ("threshold", 2, 0, 0)
    assert (shadow.policy, shadow.workers, shadow.spawns, shadow.drains) == ("workload", 3, 1, 0)
    assert live.reason.startswith("changes nothing: queued 2")
    assert shadow.reason.startswith("asks for 1: more jobs than the workers can take (queued 2")
    assert shadow_outcome([found]) == "differs"


def test_workers_that_only_the_shadow_would_let_go_are_counted() -> None:
    """A start takes 90 s: `adaptive` lets a worker go that has been idle for 45 s, `threshold` after five minutes."""
    rules = replace(SHADOWED, shadow="adaptive")
    idle = a_worker("w1", idle_since=NOW - minutes(1))
    (found,) = compared(a_snapshot(idle, policy=rules, demand=KNOWN))
    assert found.shadow is not None
    assert (found.live.workers, found.shadow.workers, found.shadow.drains) == (1, 0, 1)
    assert found.shadow.reason.startswith("drains 1: idle, and more than are wanted")


def test_what_neither_may_do_is_no_difference() -> None:
    """Both want more, and the provider has nothing to give."""
    seen = a_snapshot(queued=40, policy=SHADOWED, wait_until=NOW + minutes(1))
    (found,) = compared(seen)
    assert not found.differs
    assert shadow_outcome([found]) == "agrees"
    assert shadow_documents([found]) == [{"pool": POOL, "policy": "workload", "differs": False}]
    assert "nothing to give" in found.live.reason


def test_a_pool_without_a_shadow_is_not_asked_about() -> None:
    seen = a_snapshot(queued=40, policy=replace(SHADOWED, shadow=""))
    assert compared(seen) == ()
    assert shadow_outcome(()) is None


def _raises(_load: Load, _policy: FleetPolicy) -> Wanted:
    raise ZeroDivisionError("no jobs\nno share")


def _nothing(_load: Load, _policy: FleetPolicy) -> object:
    return None


def _half(_load: Load, _policy: FleetPolicy) -> object:
    return Wanted(cast("int", 2.5), 1)


def _late(load: Load, _policy: FleetPolicy) -> object:
    """Sound until the plan asks it about a fleet without jobs that wait."""
    return Wanted(3, 0, cast("dict[str, int]", {}), idle_limit=None if load.queued else cast("None", "soon"))


@pytest.mark.parametrize("policy", [_raises, _nothing, _half])
def test_a_shadow_that_breaks_is_a_finding_and_the_others_are_told_all_the_same(
    policy: Callable[[Load, FleetPolicy], object],
) -> None:
    seen = with_policy(a_snapshot(queued=9, policy=replace(SHADOWED, shadow="broken")), "broken", policy)
    other = PoolSnapshot(id=PoolId("other"), policy=replace(SHADOWED, shadow="workload"), queued=1)
    broken, sound = compared(replace(seen, pools=(*seen.pools, other)))
    assert (broken.shadow, broken.differs, sound.error) == (None, False, "")
    assert "Error: " in broken.error
    assert "\n" not in broken.error
    assert sound.shadow is not None
    assert shadow_outcome([sound, broken]) == "failed"
    noted = shadow_documents([sound, broken])
    assert [each["pool"] for each in noted] == [POOL, "other"], "what is wrong comes first"


def test_one_that_breaks_in_the_middle_of_its_plan_is_a_finding_too() -> None:
    idle = a_worker("w1", idle_since=NOW - minutes(60))
    seen = with_policy(a_snapshot(idle, policy=replace(SHADOWED, shadow="late")), "late", _late)
    (found,) = compared(seen)
    assert found.error.startswith("TypeError")
    assert found.live.drains == 1


def test_a_shadow_may_say_what_it_likes() -> None:
    """A text that a database could not keep would cost the whole record of the cycle."""

    def rude(_load: Load, _policy: FleetPolicy) -> Wanted:
        return Wanted(5, 5, {}, "a\x00b\ud800c" + "d" * 10_000)

    seen = with_policy(a_snapshot(queued=9, policy=replace(SHADOWED, shadow="rude")), "rude", rude)
    (found,) = compared(seen)
    assert found.shadow is not None
    assert len(found.shadow.reason) <= LONGEST
    assert found.shadow.reason.isprintable()


@st.composite
def shadowed_snapshots(draw: st.DrawFn) -> Snapshot:
    seen = draw(snapshots())
    pool = seen.pools[0]
    rules = replace(pool.policy, shadow=draw(st.sampled_from(["", "threshold", "workload", "adaptive", "broken"])))
    counted = KNOWN if rules.shadow == "adaptive" else None
    return with_policy(replace(seen, pools=(replace(pool, policy=rules, demand=counted),)), "broken", _raises)


@given(shadowed_snapshots(), st.sampled_from(["threshold", "workload", "greedy"]))
def test_what_is_decided_is_the_same_with_and_without_a_shadow(seen: Snapshot, scaling: str) -> None:
    """Also for a plugin that would make something of the demand which is only counted for the shadow."""

    def greedy(load: Load, _policy: FleetPolicy) -> Wanted:
        return Wanted(5, 5) if load.demand is not None or load.held_for else Wanted(1, 1)

    both = with_policy(seen, "greedy", greedy)
    pool = both.pools[0]
    rules = replace(pool.policy, scaling=scaling)
    beside = replace(both, pools=(replace(pool, policy=rules),))
    alone = replace(both, pools=(replace(pool, policy=replace(rules, shadow=""), demand=None),))
    assert decide(beside).steps == decide(alone).steps


@given(shadowed_snapshots())
def test_asking_never_raises_and_changes_nothing(seen: Snapshot) -> None:
    plan = decide(seen)
    found = compare(seen, plan)
    assert len(found) == bool(seen.pools[0].policy.shadow)
    assert decide(seen) == plan
    assert all(bool(each.error) == (each.policy == "broken") for each in found)


@given(shadowed_snapshots())
def test_a_shadow_that_is_the_policy_itself_never_differs(seen: Snapshot) -> None:
    pool = seen.pools[0]
    same = replace(pool, policy=replace(pool.policy, shadow=pool.policy.scaling))
    assert not any(each.differs or each.error for each in compared(replace(seen, pools=(same,))))
