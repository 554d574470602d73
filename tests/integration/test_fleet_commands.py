"""The commands about the fleet as a person types them, at a Runpod of one's own."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.shell import CANARY, Shell


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
        lines = [process.stdout.readline().removeprefix("export ").partition("=") for _ in range(6)]
        yield {name: shlex.split(value)[0] for name, _, value in lines}
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.fixture
def shell(tmp_path: Path, exported: dict[str, str]) -> Shell:
    shell = Shell(tmp_path)
    shell.environment |= {**exported, "DEPLOYMENT_ID": f"t{uuid4().hex[:8]}"}
    assert shell("db", "init").returncode == 0
    return shell


def test_a_worker_from_its_start_to_its_end(shell: Shell) -> None:
    shell.environment |= {"MIN_ACTIVE_GPUS": "0", "MAX_ACTIVE_GPUS": "1", "PROMOTION_POLICY": "pod"}
    assert shell.said("cost", "--days", "1").startswith("no instance cost anything since ")
    worker = shell.said("spawn_gpu").split(" ")[0]
    full = shell("spawn-gpu")
    assert full.returncode == 5
    assert "herdsman: pool default has 1 workers alive already\n" in full.stderr
    shell.said("submit", "demo", "--job-id", "j1")
    assert "it is the next one of its pool" in shell.said("why", "job", "j1")
    assert "blocked by MAX_ACTIVE_GPUS=1" in shell.said("why", "pool", "default")
    assert "provider and database agree" in shell.said("audit")
    assert shell.json("cost", "--by", "pool")["per_hour_usd"] == pytest.approx(0.49)
    assert "EndInstance" in shell.said("terminate-gpu", worker)
    assert "steps:\n" in shell.said("why", "worker", worker)
    assert shell("terminate_gpu", "nobody").returncode == 3


def test_a_worker_row_without_its_instance_is_reported_with_status_1(shell: Shell) -> None:
    worker = shell.said("spawn-gpu").split(" ")[0]
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
