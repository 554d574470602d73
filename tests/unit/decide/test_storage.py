"""STORAGE_MIN_FREE_GB, STORAGE_MAX_PERCENT_USED and STORAGE_EXPANSION_INCREMENT_GB."""

from pathlib import Path
from typing import Any

import pytest

from herdsman.fleet.actions import GrowVolume
from herdsman.fleet.decide import decide
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.snapshot import ListingFailed, WorkerSnapshot
from herdsman.settings import load_settings
from herdsman.settings.options import fleet_policy
from herdsman.states import WorkerStatus
from tests.support.fleets import a_snapshot, a_worker, minutes

POLICY = FleetPolicy(min_workers=0, volume_min_free_gb=50, volume_max_used=85, volume_grow_gb=20)


def with_disk(name: str = "w1", *, free: float | None, total: float | None, **values: Any) -> WorkerSnapshot:
    return a_worker(name, disk_free_gb=free, disk_total_gb=total, **values)


def grown(*workers: WorkerSnapshot, policy: FleetPolicy = POLICY, **values: Any) -> list[str]:
    actions = decide(a_snapshot(*workers, policy=policy, **values)).actions
    return [action.worker_id for action in actions if isinstance(action, GrowVolume)]


@pytest.mark.parametrize(
    ("free", "total", "expected"),
    [(49, 200, ["w1"]), (51, 200, []), (140, 1000, ["w1"]), (160, 1000, []), (None, None, [])],
)
def test_a_volume_with_too_little_room_is_grown(free: float | None, total: float | None, expected: list[str]) -> None:
    assert grown(with_disk(free=free, total=total)) == expected


def test_one_is_grown_at_a_time_and_the_fullest_first() -> None:
    """Its neighbours mostly share the volume, and say so with their next beats."""
    seen = a_snapshot(with_disk("a", free=40, total=200), with_disk("b", free=30, total=200), policy=POLICY)
    plan = decide(seen)
    assert [each.worker_id for each in plan.actions if isinstance(each, GrowVolume)] == ["b"]
    assert decide(plan.expected).actions == ()


def test_only_fresh_news_of_an_active_worker_count() -> None:
    short: dict[str, Any] = {"free": 1, "total": 200}
    assert grown(with_disk(**short, beat_age=minutes(6))) == []
    assert grown(with_disk(**short, status=WorkerStatus.TERMINATING)) == []
    assert grown(with_disk(**short, instance_ref=None, instance_name=None)) == []
    assert grown(with_disk(**short), instances=ListingFailed("timeout")) == []
    assert grown(with_disk(**short), policy=FleetPolicy(min_workers=0)) == []


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"PROVIDER": "runpod", "RUNPOD_STORAGE_NAME": "models", "STORAGE_MIN_FREE_GB": "7"}, 7),
        ({"PROVIDER": "runpod"}, None),
        ({"RUNPOD_STORAGE_NAME": "models"}, None),
    ],
)
def test_only_a_network_volume_can_be_grown(env: dict[str, str], expected: int | None) -> None:
    assert fleet_policy(load_settings(env, Path("/nonexistent"))).volume_min_free_gb == expected
