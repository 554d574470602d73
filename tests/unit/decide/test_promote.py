"""When a starting worker becomes active."""

from dataclasses import replace

import pytest

from herdsman.fleet.actions import Note, PromoteWorker
from herdsman.fleet.decide import decide
from herdsman.fleet.model import FleetPolicy, InstanceStatus, Promotion
from herdsman.fleet.phases.health import lack_of
from herdsman.fleet.snapshot import WorkerSnapshot
from herdsman.states import WorkerStatus
from tests.support.fleets import NOW, a_job, a_snapshot, a_worker, an_instance, minutes, seconds

STARTING = a_worker(status=WorkerStatus.SPAWNING, age=minutes(1), beat_age=None, ready=False, gpu_seen=None)
BEATING = a_worker(status=WorkerStatus.SPAWNING, age=minutes(1), ready=False, gpu_seen=None)
READY = a_worker(status=WorkerStatus.SPAWNING, age=minutes(1))


@pytest.mark.parametrize(
    ("rule", "promoted"),
    [
        (Promotion.POD, [STARTING, BEATING, READY]),
        (Promotion.HEARTBEAT, [BEATING, READY]),
        (Promotion.READY, [READY]),
        (Promotion.FIRST_TASK, []),
    ],
)
def test_each_rule_asks_for_its_own_proof(rule: Promotion, promoted: list[WorkerSnapshot]) -> None:
    policy = FleetPolicy(min_workers=0, promotion=rule)
    for worker in (STARTING, BEATING, READY):
        actions = decide(a_snapshot(worker, policy=policy)).actions
        assert any(isinstance(action, PromoteWorker) for action in actions) == (worker in promoted)


@pytest.mark.parametrize("rule", [Promotion.HEARTBEAT, Promotion.READY, Promotion.FIRST_TASK])
def test_a_first_job_is_proof_enough(rule: Promotion) -> None:
    """A worker that works is not killed for never having said that it is ready."""
    worker = a_worker(status=WorkerStatus.SPAWNING, age=minutes(1), beat_age=None, ready=False, job=a_job())
    (action,) = decide(a_snapshot(worker, policy=FleetPolicy(min_workers=0, promotion=rule))).actions
    assert isinstance(action, PromoteWorker)
    assert action.reason.code == "FIRST_TASK"


def test_a_heartbeat_from_before_its_creation_is_not_its_own() -> None:
    worker = a_worker(status=WorkerStatus.SPAWNING, age=seconds(10), beat_age=minutes(1))
    assert decide(a_snapshot(worker)).actions == ()


@pytest.mark.parametrize("gpu_seen", [False, None])
def test_a_worker_without_a_gpu_is_a_worker(gpu_seen: bool | None) -> None:
    worker = a_worker(status=WorkerStatus.SPAWNING, age=minutes(1), gpu_seen=gpu_seen)
    (action,) = decide(a_snapshot(worker)).actions
    assert isinstance(action, PromoteWorker)
    assert action.reason.text == "it is ready for jobs"


@pytest.mark.parametrize(
    ("rule", "gpu_seen"),
    [(Promotion.HEARTBEAT, False), (Promotion.READY, False), (Promotion.READY, None)],
)
def test_a_pool_that_requires_a_gpu_gets_no_worker_without_one(rule: Promotion, gpu_seen: bool | None) -> None:
    policy = FleetPolicy(min_workers=0, promotion=rule, require_gpu=True)
    worker = a_worker(status=WorkerStatus.SPAWNING, age=minutes(1), gpu_seen=gpu_seen)
    actions = decide(a_snapshot(worker, policy=policy)).actions
    assert not any(isinstance(action, PromoteWorker) for action in actions)
    said = [action.reason.text for action in actions if isinstance(action, Note)]
    lack = "pool default requires a GPU (REQUIRE_GPU), and this worker has none"
    assert said == ([lack] if gpu_seen is False else [])


def test_what_a_starting_worker_lacks_is_said_in_words() -> None:
    needs = FleetPolicy(require_gpu=True)
    usual = FleetPolicy()
    blind = replace(READY, gpu_seen=None)
    without = replace(READY, gpu_seen=False)
    assert lack_of(STARTING, usual, NOW) == "it has sent no heartbeat yet"
    assert lack_of(BEATING, usual, NOW) == "it is not ready for jobs yet: it loads its handlers"
    assert lack_of(READY, usual, NOW) is None
    assert lack_of(without, usual, NOW) is None
    assert lack_of(READY, needs, NOW) is None
    assert lack_of(without, needs, NOW) == "pool default requires a GPU (REQUIRE_GPU), and this worker has none"
    assert lack_of(blind, needs, NOW) == (
        "pool default requires a GPU (REQUIRE_GPU), and this worker cannot tell whether it has one (ENABLE_NVML)"
    )
    assert lack_of(replace(READY, created_at=NOW - minutes(9), last_heartbeat=NOW - minutes(2)), usual, NOW) == (
        "its last heartbeat is 120 s old"
    )


def test_a_machine_that_still_starts_proves_nothing() -> None:
    policy = FleetPolicy(min_workers=0, promotion=Promotion.POD)
    starting = (an_instance(STARTING, InstanceStatus.STARTING),)
    assert decide(a_snapshot(STARTING, policy=policy, instances=starting)).actions == ()


def test_an_old_heartbeat_speaks_for_nobody() -> None:
    spoke = a_worker(status=WorkerStatus.SPAWNING, age=minutes(4), beat_age=minutes(2))
    speaks = a_worker(status=WorkerStatus.SPAWNING, age=minutes(4), beat_age=minutes(1))
    assert not [each for each in decide(a_snapshot(spoke)).actions if isinstance(each, PromoteWorker)]
    assert [each for each in decide(a_snapshot(speaks)).actions if isinstance(each, PromoteWorker)]
