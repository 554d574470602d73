"""A worker on a real GPU: what its heartbeats say, and what a full GPU is called. Skipped where there is none."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HELD_MB = 8192
LEEWAY_MB = 64
"""nvidia-smi and the worker do not look in the same moment."""

pytestmark = [
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="this machine has no NVIDIA GPU"),
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed, which the handlers use"),
    pytest.mark.timeout(300),
]


class RealFleet:
    """`herdsman up` on this machine's GPUs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._environment = {
            **os.environ,
            "HERDSMAN_DATABASE_URL": f"sqlite:///{directory}/herd.db",
            "HERDSMAN_LOCAL_STATE_DIR": str(directory / "state"),
            "HERDSMAN_MIN_ACTIVE_GPUS": "1",
            "HERDSMAN_MAX_ACTIVE_GPUS": "1",
            "HERDSMAN_HEARTBEAT_INTERVAL_SEC": "1",
            "HERDSMAN_CANCEL_GRACE_SEC": "5",
            "HERDSMAN_WORKER_MODULES": "tests.gpu.handlers",
        }

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "herdsman", "up", "--port", "0"]
        with (self.directory / "up.log").open("wb") as log:
            return subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=log, stderr=log)

    def ask(self, *words: str) -> Any:
        command = [sys.executable, "-m", "herdsman", *words, "-o", "json"]
        said = subprocess.run(command, cwd=ROOT, env=self._environment, capture_output=True, text=True)
        assert said.stdout, f"{words}: {said.stderr}\n{self.story()}"
        return json.loads(said.stdout)

    def story(self) -> str:
        logs = [self.directory / "up.log", *(self.directory / "state").glob("local/logs/*")]
        return "\n".join(f"{each.name}:\n{each.read_text(errors='replace')}" for each in logs if each.exists())

    def gpu(self) -> dict[str, Any]:
        (worker,) = [each for each in self.ask("workers")["workers"] if each["status"] == "active"]
        return worker["metadata"]["gpus"][0]


@pytest.fixture
def fleet(tmp_path: Path) -> Generator[RealFleet]:
    fleet = RealFleet(tmp_path)
    running = fleet.start()
    try:
        until(lambda: (tmp_path / "state" / "api").exists() or running.poll() is not None, fleet)
        assert running.poll() is None, fleet.story()
        yield fleet
    finally:
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 0, fleet.story()


def until(holds: Callable[[], object], fleet: RealFleet, patience_s: float = 120) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, f"it never came to be\n{fleet.story()}"
        time.sleep(0.5)


def smi() -> dict[str, str]:
    asked = ("uuid", "name", "memory.total", "memory.used")
    said = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(asked)}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return dict(zip(asked, [part.strip() for part in said.splitlines()[0].split(",")], strict=True))


def test_heartbeats_say_what_nvidia_smi_says(fleet: RealFleet) -> None:
    job = fleet.ask("run", "gpu_multiply")
    assert job["result"]["sum"] == 256.0**3
    fleet.ask("submit", "gpu_fill", "--payload", json.dumps({"mb": HELD_MB}), "--job-id", "fill")
    until(lambda: fleet.ask("job", "fill")["progress_note"] == "held", fleet)
    until(lambda: fleet.gpu()["used_mb"] >= HELD_MB, fleet)
    ours, theirs = fleet.gpu(), smi()
    print("heartbeat:", json.dumps(ours), "nvidia-smi:", json.dumps(theirs))
    assert (ours["uuid"], ours["name"]) == (theirs["uuid"], theirs["name"])
    assert abs(ours["total_mb"] - int(theirs["memory.total"])) <= LEEWAY_MB
    assert abs(ours["used_mb"] - int(theirs["memory.used"])) <= LEEWAY_MB
    fleet.ask("cancel", "fill")
    until(lambda: fleet.ask("job", "fill")["status"] == "cancelled", fleet)


def test_a_full_gpu_is_called_out_of_memory_and_the_worker_goes_on(fleet: RealFleet) -> None:
    ended = fleet.ask("run", "gpu_too_much", "--max-attempts", "1")
    print("out of memory:", json.dumps(ended))
    assert (ended["status"], ended["failure_class"]) == ("dead_letter", "out_of_memory")
    assert fleet.ask("run", "gpu_multiply")["status"] == "done"
