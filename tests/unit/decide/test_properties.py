"""What every decision keeps, whatever was seen."""

from hypothesis import given

from herdsman.fleet.actions import (
    ConfirmTerminated,
    DrainIdleWorker,
    EndInstance,
    FailWorker,
    Note,
    SpawnWorker,
    TerminateOrphan,
)
from herdsman.fleet.decide import decide
from herdsman.fleet.snapshot import ListingFailed, Snapshot
from herdsman.states import WorkerStatus
from tests.support.fleets import POOL, snapshots


@given(snapshots())
def test_a_plan_leaves_nothing_more_to_plan(seen: Snapshot) -> None:
    again = decide(decide(seen).expected).actions
    assert [action for action in again if not isinstance(action, Note)] == []


@given(snapshots())
def test_the_ceiling_is_never_passed(seen: Snapshot) -> None:
    """P1: what may be alive counts: failed, draining, and those whose creation had an unknown outcome."""
    plan = decide(seen)
    spawned = sum(1 for action in plan.actions if isinstance(action, SpawnWorker))
    if spawned:
        assert plan.expected.alive(POOL) <= seen.pools[0].policy.max_workers


@given(snapshots())
def test_on_partial_sight_nothing_is_destroyed_and_nothing_is_spawned(seen: Snapshot) -> None:
    if isinstance(seen.instances, ListingFailed):
        harmful = (FailWorker, DrainIdleWorker, EndInstance, ConfirmTerminated, TerminateOrphan, SpawnWorker)
        assert not [action for action in decide(seen).actions if isinstance(action, harmful)]


@given(snapshots())
def test_scaling_down_never_goes_below_the_floor(seen: Snapshot) -> None:
    plan = decide(seen)
    idle = [action for action in plan.actions if isinstance(action, DrainIdleWorker) and action.reason.code == "IDLE"]
    if idle:
        policy = seen.pools[0].policy
        left = sum(1 for _ in plan.expected.of(POOL, WorkerStatus.ACTIVE))
        assert left >= min(policy.min_workers, policy.max_workers)


@given(snapshots())
def test_a_drain_never_touches_a_worker_with_a_claim(seen: Snapshot) -> None:
    busy = {worker.id for worker in seen.workers if worker.job is not None}
    assert not [
        action for action in decide(seen).actions if isinstance(action, DrainIdleWorker) and action.worker_id in busy
    ]


@given(snapshots())
def test_the_same_sight_gives_the_same_plan(seen: Snapshot) -> None:
    assert decide(seen) == decide(seen)
