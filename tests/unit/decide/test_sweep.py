"""P2, P3, P5: instances and workers are matched by name, and nothing is left over."""

from herdsman.core.actions import AttachInstance, BuryWorker, EndInstance, EndStray, ReturnJob, SpawnWorker
from herdsman.core.decide import decide
from herdsman.core.instances import Instance, InstanceRef, InstanceState
from herdsman.core.states import WorkerState
from tests.fleet import NOW, a_job, a_snapshot, a_worker, an_instance, minutes, seconds


def stray(name: str = "herd-nobody", ref: str = "pod-x") -> Instance:
    return Instance(ref=InstanceRef(ref), name=name, state=InstanceState.RUNNING)


def test_a_lost_answer_is_found_again_by_name() -> None:
    worker = a_worker(state=WorkerState.SPAWNING, age=minutes(1), beat_age=None, instance_ref=None)
    (action,) = decide(a_snapshot(worker, instances=(an_instance(worker),))).actions
    assert isinstance(action, AttachInstance)
    assert action.ref == an_instance(worker).ref


def test_an_instance_of_nobody_is_ended() -> None:
    worker = a_worker()
    (action,) = decide(a_snapshot(worker, instances=(an_instance(worker), stray()))).actions
    assert action == EndStray(InstanceRef("pod-x"), "herd-nobody", action.why)


def test_the_second_instance_of_a_worker_is_ended() -> None:
    worker = a_worker()
    twin = stray("herd-w1", "pod-twin")
    (action,) = decide(a_snapshot(worker, instances=(an_instance(worker), twin))).actions
    assert isinstance(action, EndStray)
    assert action.ref == twin.ref


def test_an_instance_that_outlived_its_worker_is_ended() -> None:
    """X1-03"""
    buried = a_worker(state=WorkerState.TERMINATED)
    (action,) = decide(a_snapshot(buried, instances=(an_instance(buried),))).actions
    assert isinstance(action, EndStray)


def test_an_empty_table_sweeps_nothing() -> None:
    """P3: it looks the same as a table that is not ours."""
    assert decide(a_snapshot(instances=(stray(),))).actions == ()


def test_a_worker_is_buried_only_when_its_instance_is_seen_to_be_gone() -> None:
    """P5: asking for the end is no proof of it."""
    failed = a_worker(state=WorkerState.ERROR, end_asked_at=NOW - seconds(30))
    assert decide(a_snapshot(failed)).actions == ()
    absent = a_worker(state=WorkerState.ERROR, end_asked_at=NOW - seconds(30), absent_since=NOW - seconds(30))
    (action,) = decide(a_snapshot(absent)).actions
    assert isinstance(action, BuryWorker)


def test_one_listing_is_not_enough_to_bury() -> None:
    absent = a_worker(state=WorkerState.ERROR, end_asked_at=NOW - seconds(5), absent_since=NOW)
    assert decide(a_snapshot(absent)).actions == ()


def test_the_end_is_asked_for_again_until_it_comes() -> None:
    deaf = a_worker(state=WorkerState.ERROR, end_asked_at=NOW - minutes(2))
    (action,) = decide(a_snapshot(deaf)).actions
    assert isinstance(action, EndInstance)


def test_the_job_of_a_failed_worker_goes_back_in_the_same_plan() -> None:
    """S0-24"""
    broken = a_worker(gpu_fault="Xid 79", job=a_job("j3"))
    kinds = [type(action).__name__ for action in decide(a_snapshot(broken)).actions]
    assert kinds == ["FailWorker", "ReturnJob", "EndInstance", "SpawnWorker"]


def test_a_killed_draining_worker_gives_its_job_back() -> None:
    worker = a_worker(
        state=WorkerState.TERMINATING,
        age=minutes(20),
        job=a_job("j4"),
        end_asked_at=NOW - minutes(1),
        absent_since=NOW - seconds(30),
    )
    kinds = [type(action) for action in decide(a_snapshot(worker)).actions]
    assert kinds == [ReturnJob, BuryWorker, SpawnWorker]
