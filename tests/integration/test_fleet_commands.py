"""The commands about the fleet as a person types them, at a Runpod of one's own."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import httpx
import pytest

from tests.support.api_server import served
from tests.support.shell import CANARY, Shell
from tests.support.up_command import until, up

NOBODY = "http://127.0.0.1:1"
"""Where the pods would find the API, if anything ran in them."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The lines that the fake prints for a shell at its start."""
    shell = Shell(tmp_path_factory.mktemp("fake"))
    command = [sys.executable, "-m", "herdsman", "fake-runpod", "--no-run-commands", "--speed", "100"]
    with subprocess.Popen(
        command, cwd=shell.directory, env=shell.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "fake Runpod at http://127.0.0.1:" in process.stdout.readline()
        yield _exports(process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def _exports(printed: IO[str]) -> dict[str, str]:
    """Every line that it prints at its start; the last one is no variable."""
    found: dict[str, str] = {}
    while (line := printed.readline()).startswith("export "):
        name, _, value = line.removeprefix("export ").partition("=")
        found[name] = shlex.split(value)[0]
    return found


@pytest.fixture
def alone(tmp_path: Path, exported: dict[str, str]) -> Shell:
    """Where no server runs."""
    shell = Shell(tmp_path)
    shell.environment |= {**exported, "DEPLOYMENT_ID": f"t{uuid4().hex[:8]}"}
    assert shell("db", "init").returncode == 0
    return shell


@pytest.fixture
def shell(alone: Shell) -> Iterator[Shell]:
    with served(alone) as shell:
        yield shell


def test_a_worker_from_its_start_to_its_end(alone: Shell) -> None:
    alone.environment |= {"MIN_ACTIVE_GPUS": "0", "MAX_ACTIVE_GPUS": "1", "PROMOTION_POLICY": "pod"}
    with served(alone) as shell:
        assert shell.said("cost", "--days", "1").startswith("no costs since ")
        worker = shell("spawn_gpu", API_URL=NOBODY).stdout.split(" ")[0]
        full = shell("spawn-gpu", API_URL=NOBODY)
        assert full.returncode == 5
        assert "herdsman: pool default has 1 workers alive already\n" in full.stderr
        shell.said("submit", "demo", "--job-id", "j1")
        assert "The job is next in pool default" in shell.said("why", "job", "j1")
        assert "blocked by MAX_ACTIVE_GPUS=1" in shell.said("why", "pool", "default")
        assert "provider and database agree" in shell.said("audit")
        assert shell.json("cost", "--by", "pool")["per_hour_usd"] == pytest.approx(0.49)
        assert "EndInstance" in shell.said("terminate-gpu", worker)
        assert "history:\n" in shell.said("why", "worker", worker)
        assert shell("terminate_gpu", "nobody").returncode == 3


def test_a_worker_row_without_its_instance_is_reported_with_status_1(shell: Shell) -> None:
    worker = shell("spawn-gpu", API_URL=NOBODY).stdout.split(" ")[0]
    shell.said("terminate-gpu", worker)
    audited = shell("audit")
    assert audited.returncode == 1
    assert f"missing     {worker}" in audited.stdout
    mended = shell("audit", "--fix", "-o", "json")
    assert mended.returncode == 1, "a worker that was just ended is not yet sure to be gone"
    assert [each["kind"] for each in json.loads(mended.stdout)["left"]] == ["missing"]


def test_the_script_of_a_pod_is_shown_without_secrets(shell: Shell) -> None:
    run = shell(
        "render-startup",
        RUNPOD_ENV_VARS=json.dumps({"TOKEN": CANARY}),
        WORKER_START_COMMAND=f"herdsman worker --token {CANARY}",
    )
    assert run.returncode == 0, run.stderr
    assert CANARY not in run.stdout + run.stderr
    assert "# HERDSMAN_BOOTSTRAP_TOKEN=***\n# TOKEN=***\n" in run.stdout
    assert "herdsman worker --token ***" in run.stdout


def test_what_is_missing_or_made_up_is_named(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    refused = shell("render-startup", PROVIDER="runpod")
    assert (refused.returncode, "RUNPOD_API_KEY is not set" in refused.stderr) == (2, True)
    refused = shell("render-startup", "--pool", "nowhere")
    assert (refused.returncode, "there is no pool 'nowhere'" in refused.stderr) == (2, True)
    refused = shell("fake-runpod", "--fault", "plague")
    assert (refused.returncode, "there is no fault 'plague'; there are: " in refused.stderr) == (2, True)


def test_a_rented_provider_without_an_address_for_its_machines_is_refused_before_the_first_cent(
    alone: Shell,
) -> None:
    real = {"RUNPOD_API_URL": "https://runpod.invalid/v2"}
    for command in (("up", "--port", "0"), ("serve",), ("cycle",), ("spawn-gpu",)):
        said = alone.refused(*command, **real)
        assert "API_URL is not set, so machines of runpod would not know whom to call: set API_URL" in said
        said = alone.refused(*command, **real, API_URL="http://localhost:8000")
        assert "API_URL is http://localhost:8000, where machines of runpod would call themselves" in said
    assert "no API of this database runs here" in alone.refused("cycle"), "a fake's pods call this machine"
    assert "no API of this database runs here" in alone.refused("spawn-gpu")


def test_what_fake_runpod_prints_is_enough_for_a_fleet_from_the_first_pod_to_none(tmp_path: Path) -> None:
    """No variable more than it prints: the real worker in a pod does a job, and the pod is ended."""
    shell = Shell(tmp_path)
    shell.environment = {"PATH": shell.environment["PATH"], "HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-m", "herdsman", "fake-runpod"],
        cwd=tmp_path,
        env=shell.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as fake:
        assert fake.stdout is not None
        origin = fake.stdout.readline().split(";")[0].rpartition(" ")[2]
        shell.environment |= _exports(fake.stdout)
        with up(shell):
            assert json.loads(shell.said("run", "demo", "--payload", '{"seconds": 0}')) == {"slept": 0}
            (pod,) = ledger(origin)["pods"]
            assert pod["alive"]
            until(lambda: ledger(origin)["alive"] == 0)
            until(lambda: shell.json("workers")["workers"][0]["status"] == "terminated")  # type: ignore[index]
            assert "provider and database agree" in shell.said("audit")
        assert len(ledger(origin)["pods"]) == 1, "the container ran without a restart, and no second pod"
        fake.send_signal(signal.SIGINT)
        assert fake.wait(30) == 0


def ledger(origin: str) -> dict[str, Any]:
    return httpx.get(f"{origin}/_ledger").json()
