"""S0-17, S1-33, C-05: when a starting worker becomes active."""

import pytest

from herdsman.core.actions import PromoteWorker
from herdsman.core.decide import decide
from herdsman.core.fleet import SeenWorker
from herdsman.core.instances import InstanceState
from herdsman.core.policy import FleetPolicy, Promotion
from herdsman.core.states import WorkerState
from tests.fleet import a_job, a_snapshot, a_worker, an_instance, minutes, seconds

STARTING = a_worker(state=WorkerState.SPAWNING, age=minutes(1), beat_age=None, ready=False, gpu_seen=None)
BEATING = a_worker(state=WorkerState.SPAWNING, age=minutes(1), ready=False, gpu_seen=None)
READY = a_worker(state=WorkerState.SPAWNING, age=minutes(1))


@pytest.mark.parametrize(
    ("rule", "promoted"),
    [
        (Promotion.POD, [STARTING, BEATING, READY]),
        (Promotion.HEARTBEAT, [BEATING, READY]),
        (Promotion.READY, [READY]),
        (Promotion.FIRST_TASK, []),
    ],
)
def test_each_rule_asks_for_its_own_proof(rule: Promotion, promoted: list[SeenWorker]) -> None:
    policy = FleetPolicy(min_workers=0, promotion=rule)
    for worker in (STARTING, BEATING, READY):
        actions = decide(a_snapshot(worker, policy=policy)).actions
        assert any(isinstance(action, PromoteWorker) for action in actions) == (worker in promoted)


@pytest.mark.parametrize("rule", [Promotion.HEARTBEAT, Promotion.READY, Promotion.FIRST_TASK])
def test_a_first_job_is_proof_enough(rule: Promotion) -> None:
    """C-05: a worker that works is not killed for never having said that it is ready."""
    worker = a_worker(state=WorkerState.SPAWNING, age=minutes(1), beat_age=None, ready=False, job=a_job())
    (action,) = decide(a_snapshot(worker, policy=FleetPolicy(min_workers=0, promotion=rule))).actions
    assert isinstance(action, PromoteWorker)
    assert action.why.code == "FIRST_TASK"


def test_a_heartbeat_from_before_its_creation_is_not_its_own() -> None:
    """L1-03"""
    worker = a_worker(state=WorkerState.SPAWNING, age=seconds(10), beat_age=minutes(1))
    assert decide(a_snapshot(worker)).actions == ()


def test_a_ready_worker_without_a_gpu_is_not_promoted() -> None:
    worker = a_worker(state=WorkerState.SPAWNING, age=minutes(1), gpu_seen=False)
    assert decide(a_snapshot(worker)).actions == ()


def test_a_machine_that_still_starts_proves_nothing() -> None:
    policy = FleetPolicy(min_workers=0, promotion=Promotion.POD)
    starting = (an_instance(STARTING, InstanceState.STARTING),)
    assert decide(a_snapshot(STARTING, policy=policy, instances=starting)).actions == ()


def test_an_old_heartbeat_speaks_for_nobody() -> None:
    spoke = a_worker(state=WorkerState.SPAWNING, age=minutes(4), beat_age=minutes(2))
    speaks = a_worker(state=WorkerState.SPAWNING, age=minutes(4), beat_age=minutes(1))
    assert not [each for each in decide(a_snapshot(spoke)).actions if isinstance(each, PromoteWorker)]
    assert [each for each in decide(a_snapshot(speaks)).actions if isinstance(each, PromoteWorker)]
