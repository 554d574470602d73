"""P5: when is an instance gone? When listings lack it for long enough, which depends on whether it was ever there."""

from datetime import timedelta

import pytest

from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.phases.scale import is_gone
from herdsman.states import WorkerStatus
from tests.support.fleets import NOW, a_worker, minutes, seconds

POLICY = FleetPolicy(absence_window=minutes(10), confirm_window=seconds(10))


@pytest.mark.parametrize(("absent_for", "gone"), [(seconds(9), False), (seconds(11), True)])
def test_one_that_worked_and_was_ended_is_gone_soon(absent_for: timedelta, gone: bool) -> None:
    worker = a_worker(status=WorkerStatus.TERMINATING, absent_since=NOW - absent_for, end_asked_at=NOW - minutes(1))
    assert is_gone(worker, POLICY, NOW) is gone


@pytest.mark.parametrize(("age", "gone"), [(minutes(6), False), (minutes(11), True)])
def test_one_that_never_showed_itself_may_only_be_overlooked_while_it_is_young(age: timedelta, gone: bool) -> None:
    """A listing may lag by minutes, and a request for its end finds nothing to end meanwhile."""
    worker = a_worker(
        status=WorkerStatus.ERROR,
        age=age,
        beat_age=None,
        idle_since=None,
        absent_since=NOW - age,
        end_asked_at=NOW - minutes(1),
    )
    assert is_gone(worker, POLICY, NOW) is gone


@pytest.mark.parametrize(("absent_for", "gone"), [(minutes(9), False), (minutes(11), True)])
def test_one_whose_creation_was_never_answered_has_the_whole_window(absent_for: timedelta, gone: bool) -> None:
    worker = a_worker(status=WorkerStatus.ERROR, instance_ref=None, absent_since=NOW - absent_for)
    assert is_gone(worker, POLICY, NOW) is gone


def test_one_that_a_listing_once_had_is_not_overlooked() -> None:
    """Its start failed, and its place need not wait until it is old."""
    worker = a_worker(
        status=WorkerStatus.ERROR,
        age=minutes(2),
        beat_age=None,
        idle_since=None,
        listed_at=NOW - minutes(1),
        absent_since=NOW - seconds(11),
        end_asked_at=NOW - seconds(30),
    )
    assert is_gone(worker, POLICY, NOW)
