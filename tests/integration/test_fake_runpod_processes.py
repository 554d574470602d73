"""A pod of the fake is a real process, which lives and dies as a container does."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from herdsman.fleet.model import Instance
from herdsman.providers.runpod import RunpodProvider
from herdsman.testing.fakes.runpod import FakeRunpod, Fault, Pace
from tests.support.runpod import KEY, a_provider, a_request
from tests.support.servers.process import find_process

SECOND = timedelta(seconds=1)


@pytest.fixture
def fake() -> Iterator[FakeRunpod]:
    with FakeRunpod(key=KEY, pace=Pace(restart=0.1 * SECOND)) as fake:
        yield fake


def spawned(fake: FakeRunpod, command: str | tuple[str, ...], **wanted: Any) -> tuple[RunpodProvider, Instance]:
    provider = a_provider(fake, start_command=command, **wanted)
    return provider, provider.spawn(a_request(GREETING="hello"))


def until(holds: Callable[[], object], *, within: float = 10) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def pid_in(file: Path) -> int:
    until(lambda: file.exists() and file.read_text().strip())
    return int(file.read_text())


def test_the_command_runs_with_the_environment_of_a_pod(fake: FakeRunpod) -> None:
    provider, instance = spawned(
        fake,
        "echo $GREETING $EXTRA $RUNPOD_POD_ID $RUNPOD_GPU_COUNT $RUNPOD_DC_ID; sleep 60",
        environment={"EXTRA": SecretStr("world")},
        data_centers=("EU-RO-1",),
        gpu_count=2,
    )
    said = f"hello world {instance.ref} 2 EU-RO-1"
    until(lambda: said in provider.logs(instance.ref, 10))
    assert provider.logs(instance.ref, 1) == [said]


def test_nothing_of_our_own_environment_is_in_a_pod(fake: FakeRunpod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_OF_THE_HOST", "seen")
    provider, instance = spawned(fake, ("sh", "-c", "echo -$CANARY_OF_THE_HOST-; sleep 60"))
    until(lambda: "--" in provider.logs(instance.ref, 10))


@pytest.mark.parametrize("volume", [{"local_volume_gb": 10}, {"volumes": ("models",)}])
def test_the_script_starts_in_the_volume_which_is_a_folder_of_the_fake(
    fake: FakeRunpod, volume: dict[str, Any]
) -> None:
    """There is no /workspace on this machine; a pod that names it works all the same."""
    provider, instance = spawned(
        fake,
        "echo $CACHE $READY /workspaces > /workspace/note; pwd > here; cat note here; sleep 60",
        environment={"CACHE": SecretStr("/workspace/cache")},
        activation=("export READY=activated",),
        **volume,
    )
    until(lambda: len(provider.logs(instance.ref, 10)) >= 2)
    said = [line for line in provider.logs(instance.ref, 10) if "fake-runpod-" in line]
    (note, here), folder = said, Path(said[1])
    assert note == f"{here}/cache activated /workspaces"
    assert folder.is_dir()
    provider.terminate(instance.ref)
    until(lambda: folder.exists() is ("volumes" in volume))


def test_the_end_of_a_pod_ends_everything_in_it(fake: FakeRunpod, tmp_path: Path) -> None:
    """Also a process that has detached itself, and one that ignores being asked."""
    files = [tmp_path / name for name in ("stubborn", "detached", "orphan")]
    command = (
        f"trap '' TERM; echo $$ > {files[0]};"
        f" setsid sh -c 'echo $$ > {files[1]}; sleep 60' &"
        f" (setsid sh -c 'echo $$ > {files[2]}; sleep 60' &) ; sleep 60"
    )
    provider, instance = spawned(fake, command)
    pids = [pid_in(file) for file in files]
    assert all(find_process(pid) for pid in pids)
    provider.terminate(instance.ref)
    until(lambda: not any(find_process(pid) for pid in pids))


def test_a_container_that_exits_is_started_again_and_its_uptime_falls_back(fake: FakeRunpod, tmp_path: Path) -> None:
    provider, instance = spawned(fake, f"echo x >> {tmp_path / 'starts'}; exit 3")
    until(lambda: (tmp_path / "starts").exists() and len((tmp_path / "starts").read_text().split()) >= 3)
    pod = shown(fake, instance)
    assert (pod["status"], pod["runtime"]["uptime"]) == ("RUNNING", 0)
    assert "container exited" in provider.logs(instance.ref, 100)


def test_a_crash_loop_can_be_had_from_any_command(fake: FakeRunpod) -> None:
    fake.faults.turn_on(Fault.CRASH_LOOP)
    provider, instance = spawned(fake, "sleep 60")
    until(lambda: provider.logs(instance.ref, 100).count("crashed") >= 2)
    assert shown(fake, instance)["status"] == "RUNNING"


def test_a_silent_pod_runs_nothing(fake: FakeRunpod) -> None:
    fake.faults.turn_on(Fault.SILENT)
    provider, instance = spawned(fake, "echo here; sleep 60")
    assert shown(fake, instance)["status"] == "RUNNING"
    assert fake.pid(instance.ref) is None
    assert "here" not in provider.logs(instance.ref, 10)


def test_a_notice_comes_before_the_end(fake: FakeRunpod, tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = f"trap 'echo x > {told}' TERM; echo ready; while :; do sleep 0.05; done"
    provider, instance = spawned(fake, command)
    until(lambda: "ready" in provider.logs(instance.ref, 10))
    fake.preempt(instance.ref, notice=SECOND)
    until(told.exists)
    assert shown(fake, instance)["status"] == "RUNNING"
    until(lambda: shown(fake, instance)["status"] == "EXITED")
    assert fake.pid(instance.ref) is None


def test_a_sudden_end_is_not_announced(fake: FakeRunpod, tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = f"trap 'echo x > {told}' TERM; echo ready; while :; do sleep 0.05; done"
    provider, instance = spawned(fake, command)
    until(lambda: "ready" in provider.logs(instance.ref, 10))
    fake.preempt(instance.ref)
    assert shown(fake, instance)["status"] == "EXITED"
    assert not told.exists()


def test_a_pod_can_vanish(fake: FakeRunpod) -> None:
    provider, instance = spawned(fake, "sleep 60")
    fake.vanish(instance.ref)
    assert provider.find(instance.ref) is None
    assert fake.ledger.alive == ()


def test_a_command_that_is_not_there_is_told_in_the_log(fake: FakeRunpod) -> None:
    provider, instance = spawned(fake, ("no-such-program",))
    until(lambda: any("could not be started" in line for line in provider.logs(instance.ref, 10)))


def test_ten_times_as_fast(tmp_path: Path) -> None:
    with FakeRunpod(key=KEY, pace=Pace(starting=5 * SECOND), speed=10) as fake:
        _, instance = spawned(fake, f"echo $$ > {tmp_path / 'pid'}; sleep 60")
        assert shown(fake, instance)["status"] == "STARTING"
        pid_in(tmp_path / "pid")
        assert shown(fake, instance)["status"] == "RUNNING"


def test_no_process_outlives_the_fake(tmp_path: Path) -> None:
    with FakeRunpod(key=KEY) as fake:
        spawned(fake, f"echo $$ > {tmp_path / 'pid'}; sleep 60")
        pid = pid_in(tmp_path / "pid")
    assert find_process(pid) is None


def test_no_process_outlives_a_fake_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import httpx, signal; from herdsman.testing.fakes.runpod import FakeRunpod\n"
        "with FakeRunpod() as fake:\n"
        "    body = {'name': 'x', 'image': 'i', 'gpu': {'id': 'NVIDIA L4', 'count': 1}, 'disk': 20,\n"
        f"        'cmd': ['sh', '-c', 'echo $$ > {tmp_path}/pid; sleep 60']}}\n"
        "    httpx.post(f'{fake.url}/pods', json=body, headers={'Authorization': f'Bearer {fake.key}'})\n"
        "    signal.pause()\n"
    )
    ours = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", program], env=ours) as running:
        pid = pid_in(tmp_path / "pid")
        os.kill(running.pid, signal.SIGKILL)
    until(lambda: find_process(pid) is None)


def test_a_log_can_be_followed(fake: FakeRunpod, tmp_path: Path) -> None:
    _, instance = spawned(fake, f"echo one; while [ ! -e {tmp_path / 'go'} ]; do sleep 0.02; done; echo two; sleep 60")
    headers = {"Authorization": f"Bearer {KEY}"}
    url = f"{fake.url}/pods/{instance.ref}/logs?source=container"
    until(lambda: fake.pid(instance.ref))
    with httpx.stream("GET", url, headers=headers) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data:"))
        assert '"line": "one"' in next(lines)
        (tmp_path / "go").touch()
        assert '"line": "two"' in next(lines)


def shown(fake: FakeRunpod, instance: Instance) -> dict[str, Any]:
    return httpx.get(f"{fake.url}/pods/{instance.ref}", headers={"Authorization": f"Bearer {KEY}"}).json()
