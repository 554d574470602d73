"""The life of pools that were asked for by name, as the judgement sees it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.fleet.actions import (
    AssignModelRevision,
    CancelSpawn,
    DrainWorker,
    MovePool,
    Note,
    RequeueJob,
    SpawnWorker,
)
from herdsman.fleet.decide import decide
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.snapshot import ListingFailed, PoolLife, PoolSnapshot, Snapshot
from herdsman.ids import PoolId
from herdsman.jobs.model import FailureClass
from herdsman.states import POOL as POOLS
from herdsman.states import PoolStatus, WorkerStatus
from tests.support.fleets import (
    NOW,
    POOL,
    a_job,
    a_snapshot,
    a_worker,
    an_instance,
    minutes,
    seconds,
    snapshots,
)

CLOSED = (PoolStatus.DRAINING, PoolStatus.STOPPED, PoolStatus.EVICTED)


def a_life(state: PoolStatus = PoolStatus.RUNNING, **values: Any) -> PoolLife:
    return PoolLife(status=state, **values)


def moves(seen: Snapshot) -> list[PoolStatus]:
    return [action.to for action in decide(seen).actions if isinstance(action, MovePool)]


def test_a_pool_runs_when_a_worker_of_it_is_there() -> None:
    life = a_life(PoolStatus.STARTING)
    assert moves(a_snapshot(a_worker(), life=life)) == [PoolStatus.RUNNING]
    assert moves(a_snapshot(life=life)) == []


@pytest.mark.parametrize(
    ("ends_in", "values", "expected"),
    [
        (-1, {}, [PoolStatus.DRAINING]),
        (1, {}, []),
        (-1, {"queued": 1}, []),
        (-1, {"instances": ListingFailed("away")}, []),
    ],
)
def test_a_hold_that_is_over_ends_a_pool_that_nobody_uses(
    ends_in: int, values: dict[str, Any], expected: list[PoolStatus]
) -> None:
    life = a_life(hold_ends_at=NOW + seconds(ends_in))
    policy = FleetPolicy(min_workers=1, max_workers=1)
    assert moves(a_snapshot(a_worker(), life=life, policy=policy, **values)) == expected
    assert moves(a_snapshot(a_worker(job=a_job()), life=life, **values)) == []


def test_a_pool_that_only_its_hold_has_ended_comes_back_when_jobs_do() -> None:
    by_hold, by_hand = (a_life(PoolStatus.DRAINING, ended_by_hold=each) for each in (True, False))
    assert moves(a_snapshot(a_worker(), queued=1, life=by_hold)) == [PoolStatus.RUNNING]
    assert moves(a_snapshot(a_worker(), queued=1, life=by_hand)) == []


def test_a_closed_pool_lets_all_go_and_a_busy_one_finishes() -> None:
    fleet = (a_worker("busy", job=a_job()), a_worker("idle"), a_worker("new", WorkerStatus.SPAWNING))
    seen = a_snapshot(*fleet, queued=9, life=a_life(PoolStatus.DRAINING), policy=FleetPolicy(min_workers=3))
    actions = decide(seen).actions
    retired = {each.worker_id for each in actions if isinstance(each, DrainWorker)}
    assert {"busy", "idle"} <= retired
    assert not [each for each in actions if isinstance(each, SpawnWorker | RequeueJob)]


def test_an_evicted_pool_waits_for_nobody_and_blames_no_job() -> None:
    busy = a_worker("busy", job=a_job("j1"), batch=(a_job("j2"),))
    actions = decide(a_snapshot(busy, life=a_life(PoolStatus.EVICTED))).actions
    kinds = {each.key.job_id: each.kind for each in actions if isinstance(each, RequeueJob)}
    assert kinds == {"j1": FailureClass.INTERRUPTED, "j2": FailureClass.INTERRUPTED}
    assert [each.worker_id for each in actions if isinstance(each, DrainWorker)] == ["busy"]


def test_a_pool_that_drains_has_stopped_with_its_last_worker() -> None:
    life = a_life(PoolStatus.DRAINING)
    assert moves(a_snapshot(a_worker(job=a_job()), life=life)) == []
    assert moves(a_snapshot(life=life)) == [PoolStatus.STOPPED]


@pytest.mark.parametrize(("age", "retired"), [(minutes(59), []), (minutes(61), ["old"])])
def test_the_oldest_is_retired_when_it_has_lived_long_enough(age: timedelta, retired: list[str]) -> None:
    life = a_life(max_lifetime=minutes(60))
    fleet = (a_worker("old", age=age, job=a_job()), a_worker("young", age=minutes(5)))
    actions = decide(a_snapshot(*fleet, life=life, policy=FleetPolicy(min_workers=2))).actions
    assert [each.worker_id for each in actions if isinstance(each, DrainWorker)] == retired


def test_nobody_is_retired_while_another_comes_or_goes() -> None:
    life = a_life(max_lifetime=minutes(1))
    for other in (WorkerStatus.SPAWNING, WorkerStatus.TERMINATING):
        fleet = (a_worker("old"), a_worker("other", other, age=minutes(1), ready=False, job=None))
        seen = a_snapshot(*fleet, life=life, policy=FleetPolicy(min_workers=2))
        assert not [each for each in decide(seen).actions if isinstance(each, DrainWorker)]


@pytest.mark.parametrize(("active", "offered"), [(1, 1), (2, 1), (7, 1), (8, 2), (12, 3)])
def test_a_swap_reaches_a_few_workers_at_a_time(active: int, offered: int) -> None:
    fleet = [a_worker(f"w{number:02}", revision=1, wanted_revision=1) for number in range(active)]
    policy = FleetPolicy(min_workers=active, max_workers=20)
    first = decide(a_snapshot(*fleet, life=a_life(revision=2), policy=policy))
    offers = [each for each in first.actions if isinstance(each, AssignModelRevision)]
    assert [each.revision for each in offers] == [2] * offered
    assert not [each for each in decide(first.expected).actions if isinstance(each, AssignModelRevision)]


def test_a_swap_goes_on_when_the_first_have_followed_and_stalls_when_they_cannot() -> None:
    policy = FleetPolicy(min_workers=2)
    behind = a_worker("b", revision=1, wanted_revision=1)
    for first, expected in (
        (a_worker("a", revision=2, wanted_revision=2), ["b"]),
        (a_worker("a", revision=1, wanted_revision=2), []),
    ):
        seen = a_snapshot(first, behind, life=a_life(revision=2), policy=policy)
        assert [each.worker_id for each in decide(seen).actions if isinstance(each, AssignModelRevision)] == expected


def test_idle_workers_are_swapped_before_busy_ones() -> None:
    fleet = (a_worker("a", job=a_job()), a_worker("b"))
    seen = a_snapshot(*fleet, life=a_life(revision=1), policy=FleetPolicy(min_workers=2))
    assert [each.worker_id for each in decide(seen).actions if isinstance(each, AssignModelRevision)] == ["b"]


def test_a_pool_that_others_serve_gets_no_worker() -> None:
    policy = FleetPolicy(min_workers=3)
    (action,) = decide(a_snapshot(queued=9, life=a_life(by_hand=True), policy=policy)).actions
    assert isinstance(action, Note)
    assert action.reason.code == "SERVED_BY_HAND"


def test_pools_that_share_a_ceiling_never_pass_it() -> None:
    """P1"""
    policy = FleetPolicy(min_workers=3, max_workers=3)
    names = [PoolId(f"p{number}") for number in range(4)]
    pools = tuple(PoolSnapshot(id=name, policy=policy, life=a_life(), shares=True) for name in names)
    here = a_worker(pool=names[0])
    plan = decide(Snapshot(now=NOW, pools=pools, workers=(here,), instances=(an_instance(here),), most_together=5))
    assert sum(1 for each in plan.actions if isinstance(each, SpawnWorker)) == 4
    said = {each.about: each.reason.code for each in plan.actions if isinstance(each, Note)}
    assert {said[name] for name in names[2:]} == {"CEILING"}


@given(snapshots(), st.integers(0, 6))
def test_the_shared_ceiling_is_never_passed(seen: Snapshot, most: int) -> None:
    pools = tuple(replace(pool, shares=True) for pool in seen.pools)
    plan = decide(replace(seen, pools=pools, most_together=most))
    if any(isinstance(action, SpawnWorker) for action in plan.actions):
        room = plan.expected.room_together()
        assert room is not None
        assert room >= 0


@given(snapshots())
def test_a_closed_pool_gets_no_worker_and_a_plan_makes_only_legal_moves(seen: Snapshot) -> None:
    (pool,) = seen.pools
    actions = decide(seen).actions
    moved = [action.to for action in actions if isinstance(action, MovePool)]
    state = None if pool.life is None else pool.life.status
    for to in moved:
        assert state is not None
        assert POOLS.allows(state, to)
        state = to
    if state in CLOSED or (pool.life is not None and pool.life.by_hand):
        assert not [each for each in actions if isinstance(each, SpawnWorker)]


@given(snapshots())
def test_on_partial_sight_nobody_is_retired_and_no_pool_is_let_go(seen: Snapshot) -> None:
    if isinstance(seen.instances, ListingFailed):
        actions = decide(seen).actions
        assert not [each for each in actions if isinstance(each, DrainWorker | CancelSpawn)]
        assert PoolStatus.DRAINING not in [each.to for each in actions if isinstance(each, MovePool)]


@given(snapshots())
def test_jobs_are_only_interrupted_where_a_person_evicts_or_nobody_was_heard(seen: Snapshot) -> None:
    (pool,) = seen.pools
    heard = {each.id: each.last_heartbeat for each in seen.workers}
    for each in decide(seen).actions:
        if isinstance(each, RequeueJob) and each.kind is FailureClass.INTERRUPTED:
            evicted = pool.life is not None and pool.life.status is PoolStatus.EVICTED
            last = heard[each.worker_id]
            assert evicted or (seen.beats_since is not None and (last is None or last < seen.beats_since))


@given(snapshots())
def test_most_of_a_pool_serves_while_it_is_swapped(seen: Snapshot) -> None:
    plan = decide(seen)
    if not [each for each in plan.actions if isinstance(each, AssignModelRevision)]:
        return
    active = list(plan.expected.of(POOL, WorkerStatus.ACTIVE))
    loading = sum(1 for each in active if each.revision < each.wanted_revision)
    assert loading <= max(1, len(active) // 4)
