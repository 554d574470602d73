"""What `herdsman up` chooses for workers of this machine, and that whoever chose is heard."""

import socket
from pathlib import Path

import pytest

from herdsman.cli.machine import for_this_machine, on_a_free_port
from herdsman.settings import Settings, load_settings


def chosen(directory: Path, env: dict[str, str], gpus: int = 0) -> Settings:
    return for_this_machine(load_settings(env, directory), gpus=lambda: gpus)


@pytest.mark.parametrize(("gpus", "fake"), [(0, 2), (1, 0)])
def test_only_a_machine_without_a_gpu_pretends(tmp_path: Path, gpus: int, fake: int) -> None:
    assert chosen(tmp_path, {}, gpus).local.fake_gpus == fake


@pytest.mark.parametrize("said", ["0", "3"])
def test_who_says_how_many_to_pretend_is_heard(tmp_path: Path, said: str) -> None:
    assert chosen(tmp_path, {"FAKE_GPUS": said}).local.fake_gpus == int(said)


def test_a_worker_that_died_here_is_replaced_within_the_time_of_a_claim(tmp_path: Path) -> None:
    (tmp_path / "herdsman.toml").write_text("[pool.llm]\nmin_active_gpus = 1\n")
    settings = chosen(tmp_path, {})
    assert settings.health.heartbeat_timeout_sec == settings.jobs.claim_ttl_sec
    assert settings.by_pool["llm"].health.heartbeat_timeout_sec == settings.jobs.claim_ttl_sec
    assert settings.by_pool["llm"].scaling.min_active_gpus == 1


@pytest.mark.parametrize(
    ("name", "value", "silent"),
    [
        ("HEARTBEAT_TIMEOUT_SEC", "200", 200),
        ("GPU_IDLE_TIMEOUT_SEC", "100", 100),
        ("HEARTBEAT_INTERVAL_SEC", "4", 300),
    ],
)
def test_who_says_something_about_silence_is_heard(tmp_path: Path, name: str, value: str, silent: int) -> None:
    assert chosen(tmp_path, {name: value}).health.heartbeat_timeout_sec == silent


def test_rented_machines_are_another_matter(tmp_path: Path) -> None:
    keys = {"RUNPOD_API_KEY": "k", "RUNPOD_GPU_TYPE": "NVIDIA L4", "RUNPOD_WORKER_IMAGE": "worker"}
    env = {"PROVIDER": "runpod", "DEPLOYMENT_ID": "try", "API_URL": "http://127.0.0.1:1", **keys}
    settings = load_settings(env, tmp_path)
    assert for_this_machine(settings, gpus=lambda: 0) is settings


def test_any_free_port_will_do_where_the_usual_one_is_taken_and_nobody_chose(tmp_path: Path) -> None:
    usual = load_settings({}, tmp_path)
    with socket.create_server((usual.api.api_host, 0)) as taken:
        port = taken.getsockname()[1]
        crowded = usual.model_copy(update={"api": usual.api.model_copy(update={"api_port": port})})
        assert on_a_free_port(crowded).api.api_port == 0
        chosen = load_settings({"API_PORT": str(port)}, tmp_path)
        assert on_a_free_port(chosen).api.api_port == port
    assert on_a_free_port(crowded).api.api_port == port
