"""Pools of their own in the configuration file."""

from datetime import timedelta
from pathlib import Path

import pytest

from herdsman.errors import InvalidSettings
from herdsman.ids import DEFAULT_POOL, PoolId
from herdsman.server.wiring import pools_kept
from herdsman.settings import load_settings
from herdsman.settings.options import fleet_policies, runpod_options, within_this_machine

TWO_POOLS = """
max_active_gpus = 8

[health]
task_stuck_timeout_sec = 120

[pool.video]
min_active_gpus = 0
max_active_gpus = 3
scaling_policy = "workload"
task_stuck_timeout_sec = 3600
runpod_gpu_types = ["NVIDIA H100"]
"""


def write(folder: Path, text: str) -> Path:
    (folder / "herdsman.toml").write_text(text)
    return folder


def refusal(folder: Path, text: str, env: dict[str, str] | None = None) -> str:
    with pytest.raises(InvalidSettings) as refused:
        load_settings(env or {}, write(folder, text))
    return str(refused.value).replace(str(folder / "herdsman.toml"), "FILE")


def test_a_pool_has_its_own_rules_and_otherwise_those_of_all(tmp_path: Path) -> None:
    policies = fleet_policies(load_settings({"MIN_ACTIVE_GPUS": "1"}, write(tmp_path, TWO_POOLS)))
    video, usual = policies[PoolId("video")], policies[DEFAULT_POOL]
    assert (usual.min_workers, usual.max_workers, usual.scaling) == (1, 8, "threshold")
    assert (video.min_workers, video.max_workers, video.scaling) == (0, 3, "workload")
    assert (usual.stuck_timeout, video.stuck_timeout) == (timedelta(minutes=2), timedelta(hours=1))
    assert video.jobs_per_worker == usual.jobs_per_worker == 3


@pytest.mark.parametrize(("gpus", "sizes"), [(2, (2, 2)), (1, (1, 1)), (20, (2, 8)), (0, (2, 8))])
def test_this_machine_has_no_more_workers_than_gpus(tmp_path: Path, gpus: int, sizes: tuple[int, int]) -> None:
    pools = fleet_policies(load_settings({}, write(tmp_path, TWO_POOLS)))
    usual = within_this_machine(pools, gpus)[DEFAULT_POOL]
    assert (usual.min_workers, usual.max_workers) == sizes
    assert usual.machine_is_full == (sizes[1] == gpus)
    assert usual.confirm_window == timedelta(0), "a process that is not listed has ended"


def test_the_control_loop_keeps_no_more_workers_than_this_machine_has_gpus(tmp_path: Path) -> None:
    settings = load_settings({"FAKE_GPUS": "2"}, write(tmp_path, TWO_POOLS))
    assert [each.max_workers for each in pools_kept(settings).values()] == [2, 2]
    rented = {"PROVIDER": "runpod", "DEPLOYMENT_ID": "d", "RUNPOD_GPU_TYPE": "NVIDIA L4"}
    keys = {"RUNPOD_API_KEY": "k", "RUNPOD_WORKER_IMAGE": "worker", "API_URL": "http://127.0.0.1:1"}
    settings = load_settings({"FAKE_GPUS": "2", **rented, **keys}, tmp_path)
    assert [each.max_workers for each in pools_kept(settings).values()] == [8, 3]


def test_a_pool_may_ask_for_other_machines(tmp_path: Path) -> None:
    env = {"RUNPOD_API_KEY": "k", "DEPLOYMENT_ID": "d", "RUNPOD_GPU_TYPE": "NVIDIA L4"}
    options = runpod_options(load_settings(env, write(tmp_path, TWO_POOLS)))
    pools = options["pools"]
    assert isinstance(pools, dict)
    assert options["gpu_types"] == ("NVIDIA L4",)
    assert pools["video"]["gpu_types"] == ("NVIDIA H100",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[pool.video]\nmin_active_gpu = 1",
            "min_active_gpu in [pool.video] of FILE is not a setting that a pool has; did you mean min_active_gpus?",
        ),
        (
            "[pool.video]\nlog_level = 'info'",
            "log_level in [pool.video] of FILE is not a setting that a pool has",
        ),
        (
            "[pool.video]\nbudget_per_day_usd = 5",
            "budget_per_day_usd in [pool.video] of FILE is for all pools together: set it at the top of the file.",
        ),
        (
            "[pool.default]\nmin_active_gpus = 1",
            "[pool.default] in FILE: its settings stand at the top of the file, without a pool.",
        ),
        ("[pool.'a b']\nmin_active_gpus = 1", "[pool.a b] in FILE: the name of a pool is 'a b'"),
        ("pool = 3", "pool in FILE must be tables of the form [pool.NAME]."),
        ("[pool]\nvideo = 3", "pool.video in FILE must be a table of settings."),
        (
            "[pool.video]\nmin_active_gpus = -1",
            "pool video: min_active_gpus must be a whole number from 0 to 1000000000, but is -1 in [pool.video] of FILE.",
        ),
        ("[pool.video]\nmin_active_gpus = 20", "pool video: MIN_ACTIVE_GPUS"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert refusal(tmp_path, text).startswith(said)
