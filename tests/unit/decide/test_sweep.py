"""P2, P3, P5: instances and workers are matched by name, and nothing is left over."""

from dataclasses import replace

import pytest

from herdsman.fleet.actions import (
    ActionReason,
    AttachInstance,
    Code,
    ConfirmTerminated,
    EndInstance,
    Note,
    RequeueJob,
    SpawnWorker,
    TerminateOrphan,
)
from herdsman.fleet.decide import decide
from herdsman.fleet.model import FleetPolicy, Instance, InstanceRef, InstanceStatus
from herdsman.fleet.phases.instances import orphans
from herdsman.fleet.snapshot import WorkerSnapshot
from herdsman.states import WorkerStatus
from tests.support.fleets import NOW, a_job, a_name, a_snapshot, a_worker, an_instance, minutes, seconds


def stray(name: str = a_name("nobody"), ref: str = "pod-x") -> Instance:
    return Instance(ref=InstanceRef(ref), name=name, status=InstanceStatus.RUNNING)


def unowned(*workers: WorkerSnapshot, instances: tuple[Instance, ...]) -> list[InstanceRef]:
    return list(orphans(a_snapshot(*workers, instances=instances)))


def test_a_lost_answer_is_found_again_by_name() -> None:
    worker = a_worker(status=WorkerStatus.SPAWNING, age=minutes(1), beat_age=None, instance_ref=None)
    (action,) = decide(a_snapshot(worker, instances=(an_instance(worker),))).actions
    assert isinstance(action, AttachInstance)
    assert action.ref == an_instance(worker).ref


def test_an_orphan_is_ended_once_it_was_seen_for_a_while() -> None:
    worker = a_worker()
    seen = a_snapshot(worker, instances=(an_instance(worker), stray()), orphans=("pod-x",))
    (action,) = decide(seen).actions
    assert action == TerminateOrphan(InstanceRef("pod-x"), a_name("nobody"), action.reason)
    for since in (NOW, NOW - seconds(59)):
        assert decide(replace(seen, orphans={"pod-x": since})).actions == ()
    eager = a_snapshot(worker, instances=(stray(),), policy=FleetPolicy(min_workers=0, orphan_grace=seconds(0)))
    assert not [each for each in decide(eager).actions if isinstance(each, TerminateOrphan)], "never at the first look"


def test_what_is_not_known_as_an_orphan_before_the_cycle_is_not_ended_in_it() -> None:
    """A spawn of the same cycle fills the table, which was empty when it was looked at."""
    seen = a_snapshot(queued=5, instances=(stray(),))
    actions = decide(seen).actions
    assert [each for each in actions if isinstance(each, SpawnWorker)]
    assert not [each for each in actions if isinstance(each, TerminateOrphan)]


def test_an_instance_of_nobody_is_an_orphan() -> None:
    worker = a_worker()
    assert unowned(worker, instances=(an_instance(worker), stray())) == ["pod-x"]


@pytest.mark.parametrize("name", [a_name("nobody", "012345abcdef"), "gpu--test--gpu-17-old", "gpu--test--x--y"])
def test_what_another_database_started_is_no_orphan_of_ours(name: str) -> None:
    assert unowned(a_worker(), instances=(an_instance(a_worker()), stray(name))) == []


def test_the_second_instance_of_a_worker_is_an_orphan() -> None:
    worker = a_worker()
    assert unowned(worker, instances=(an_instance(worker), stray(a_name("w1"), "pod-twin"))) == ["pod-twin"]


def test_an_instance_that_outlived_its_worker_is_an_orphan() -> None:
    buried = a_worker(status=WorkerStatus.TERMINATED)
    assert unowned(buried, instances=(an_instance(buried),)) == [an_instance(buried).ref]


def test_an_empty_table_has_no_orphans() -> None:
    """P3: it looks the same as a table that is not ours."""
    assert unowned(instances=(stray(),)) == []


def test_in_doubt_about_the_database_only_words_follow() -> None:
    silent = a_worker(beat_age=minutes(60))
    seen = replace(a_snapshot(silent, queued=9, orphans=("pod-x",)), doubt="it may be a copy")
    (action,) = decide(seen).actions
    assert isinstance(action, Note)
    assert action.reason == ActionReason(Code.DATABASE_NOT_ADOPTED, "it may be a copy")


def test_a_worker_is_buried_only_when_its_instance_is_seen_to_be_gone() -> None:
    """P5: asking for the end is no proof of it."""
    failed = a_worker(status=WorkerStatus.ERROR, end_asked_at=NOW - seconds(30))
    assert decide(a_snapshot(failed)).actions == ()
    absent = a_worker(status=WorkerStatus.ERROR, end_asked_at=NOW - seconds(30), absent_since=NOW - seconds(30))
    (action,) = decide(a_snapshot(absent)).actions
    assert isinstance(action, ConfirmTerminated)


def test_one_listing_is_not_enough_to_bury() -> None:
    absent = a_worker(status=WorkerStatus.ERROR, end_asked_at=NOW - seconds(5), absent_since=NOW)
    assert decide(a_snapshot(absent)).actions == ()


def test_the_end_is_asked_for_again_until_it_comes() -> None:
    deaf = a_worker(status=WorkerStatus.ERROR, end_asked_at=NOW - minutes(2))
    (action,) = decide(a_snapshot(deaf)).actions
    assert isinstance(action, EndInstance)


def test_the_job_of_a_failed_worker_goes_back_in_the_same_plan() -> None:
    broken = a_worker(gpu_fault="Xid 79", job=a_job("j3"))
    kinds = [type(action).__name__ for action in decide(a_snapshot(broken)).actions]
    assert kinds == ["FailWorker", "RequeueJob", "EndInstance", "SpawnWorker"]


def test_a_killed_draining_worker_gives_its_job_back() -> None:
    worker = a_worker(
        status=WorkerStatus.TERMINATING,
        age=minutes(20),
        job=a_job("j4"),
        end_asked_at=NOW - minutes(1),
        absent_since=NOW - seconds(30),
    )
    kinds = [type(action) for action in decide(a_snapshot(worker)).actions]
    assert kinds == [RequeueJob, ConfirmTerminated, SpawnWorker]
