"""What the provider has and the table does not, and the other way round."""

from dataclasses import replace
from decimal import Decimal

import pytest

from herdsman.fleet.actions import ActionReason, Code, FailWorker, SpawnWorker, TerminateOrphan
from herdsman.fleet.model import Instance, InstanceRef, InstanceStatus
from herdsman.fleet.phases.instances import Kind, differences, doubts, repairs
from herdsman.fleet.snapshot import ListingFailed
from herdsman.ids import PoolId, WorkerId
from herdsman.states import WorkerStatus
from tests.support.fleets import a_name, a_snapshot, a_worker, an_instance

WHY = ActionReason(Code.UNKNOWN_INSTANCE, "why")
STRAY = Instance(
    ref=InstanceRef("pod-x"), name=a_name("x"), status=InstanceStatus.RUNNING, cost_per_hour=Decimal("0.5")
)


def test_a_fleet_that_fits_has_none() -> None:
    assert differences(a_snapshot(a_worker())) == ()


def test_an_instance_without_a_living_worker_is_a_stray_with_its_price() -> None:
    gone = a_worker("gone", WorkerStatus.TERMINATED)
    found = differences(a_snapshot(a_worker(), gone, instances=(an_instance(a_worker()), STRAY, an_instance(gone))))
    assert {(each.kind, each.instance) for each in found} == {
        (Kind.ORPHAN, "pod-x"),
        (Kind.ORPHAN, "pod-gone"),
    }
    assert sum(each.cost_per_hour for each in found) == Decimal("0.5")


@pytest.mark.parametrize(
    ("name", "said"),
    [(a_name("x", "012345abcdef"), "another database, 012345abcdef"), ("gpu--a--x", "older version")],
)
def test_what_another_database_started_is_told_from_a_stray(name: str, said: str) -> None:
    theirs = replace(STRAY, name=name)
    (found,) = differences(a_snapshot(a_worker(), instances=(an_instance(a_worker()), theirs)))
    assert (found.kind, found.instance) == (Kind.FOREIGN, "pod-x")
    assert said in found.text


def test_in_doubt_about_the_database_nothing_is_concluded() -> None:
    assert doubts(replace(a_snapshot(a_worker()), doubt="it may be a copy")) == "it may be a copy"


def test_a_second_instance_of_a_worker_is_a_twin() -> None:
    worker = a_worker()
    twin = replace(an_instance(worker), ref=InstanceRef("pod-twin"))
    (found,) = differences(a_snapshot(worker, instances=(an_instance(worker), twin)))
    assert (found.kind, found.worker_id, found.instance) == (Kind.DUPLICATE, worker.id, "pod-twin")


def test_a_worker_whose_answer_was_lost_is_told_from_a_stray() -> None:
    worker = a_worker(instance_ref=None)
    (found,) = differences(a_snapshot(worker, instances=(an_instance(worker),)))
    assert (found.kind, found.worker_id) == (Kind.UNATTACHED, worker.id)


def test_a_worker_without_an_instance_is_missing_it_and_one_started_by_hand_is_not() -> None:
    lost, by_hand = a_worker("lost"), a_worker("hand", instance_name=None, instance_ref=None)
    (found,) = differences(a_snapshot(lost, by_hand, instances=()))
    assert (found.kind, found.worker_id) == (Kind.MISSING, lost.id)


def test_on_partial_sight_nothing_is_concluded() -> None:
    seen = a_snapshot(a_worker(), instances=ListingFailed("it is away"))
    assert differences(seen) == ()
    assert "it is away" in doubts(seen)


def test_an_empty_table_is_doubted_not_believed() -> None:
    seen = a_snapshot(instances=(STRAY,))
    assert differences(seen) == ()
    assert "is this the right database?" in doubts(seen)


def test_only_what_is_about_a_difference_is_mended() -> None:
    found = differences(a_snapshot(a_worker("lost"), instances=(STRAY,)))
    assert repairs(TerminateOrphan(STRAY.ref, STRAY.name, WHY), found)
    assert not repairs(TerminateOrphan(InstanceRef("pod-new"), STRAY.name, WHY), found), "nobody was asked about it"
    assert repairs(FailWorker(WorkerId("lost"), WHY), found)
    assert not repairs(FailWorker(WorkerId("other"), WHY), found)
    assert not repairs(SpawnWorker(PoolId("default"), WHY), found)
