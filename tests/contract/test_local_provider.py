"""Workers as processes of this machine: the promises of every provider, and those that only processes need."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from herdsman.errors import CapacityUnavailable, ProviderRejected, ProviderUnavailable
from herdsman.fleet.model import Instance, InstanceRef, SpawnRequest
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.ports import Provider, SystemClock
from herdsman.providers import registry
from herdsman.providers.local import processes
from herdsman.providers.local.processes import Identity
from herdsman.providers.local.provider import LocalOptions, LocalProvider, Record, next_gpu
from herdsman.testing.provider_contract import ProviderContract

SLEEP = ("/bin/sleep", "60")
# Says when it is deaf: before that, the signal would end it as it ends anything.
DEAF = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)",
)
FAMILY = ("/bin/sh", "-c", "sleep 60 & setsid -f true; sleep 60")


def options(directory: Path, **wanted: object) -> LocalOptions:
    usual = LocalOptions(state_dir=directory, deployment="test", command=SLEEP, fake_gpus=4)
    return replace(usual, **wanted)  # type: ignore[arg-type]  # a test names real fields


def opened(directory: Path, **wanted: object) -> LocalProvider:
    return LocalProvider(options(directory, **wanted), SystemClock())


def a_request(**environment: str) -> SpawnRequest:
    name = f"gpu--test--{uuid4().hex}"
    return SpawnRequest(name=name, worker_id=WorkerId(name), pool=DEFAULT_POOL, environment=environment)


def end_all(provider: LocalProvider) -> None:
    """Of the processes that this provider remembers to have started, none stays."""
    with provider.state.locked():
        for record in provider.state.records():
            if record.process is not None:
                processes.kill_family(record.process)
    eventually(lambda: not provider.list_instances())


def eventually(holds: Callable[[], bool], patience_s: float = 10) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


def process_of(provider: LocalProvider, instance: Instance) -> Identity:
    record = provider.state.find(instance.ref)
    assert record is not None
    assert record.process is not None
    return record.process


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_all(opened(tmp_path))


class TestLocal(ProviderContract):
    home: Path

    @pytest.fixture
    def provider(self, tmp_path: Path) -> Iterator[Provider]:
        self.home = tmp_path
        yield opened(tmp_path)
        end_all(opened(tmp_path))
        end_all(opened(tmp_path, deployment="test-b"))

    def new_name(self) -> str:
        return f"gpu--test--{uuid4().hex}"

    def add_foreign(self) -> str:
        name = f"gpu--test-b--{uuid4().hex}"
        opened(self.home, deployment="test-b").spawn(replace(a_request(), name=name))
        return name

    def unreachable(self) -> Provider:
        """Where its files should be is something else."""
        return LocalProvider(options(Path("/dev/null/nowhere")), SystemClock())

    def test_nobody_at_the_other_end_is_an_error_and_never_an_empty_answer(self) -> None:
        provider = self.unreachable()
        for call in (provider.list_instances, lambda: provider.spawn(a_request())):
            with pytest.raises(ProviderUnavailable, match="the state of local workers cannot be used"):
                call()


def test_it_is_found_by_its_name_as_anyone_s_provider_is(directory: Path) -> None:
    found = registry.find("local")({"state_dir": directory}, SystemClock())
    assert found.name == "local"


def test_instances_outlive_the_control_plane_and_are_found_again(directory: Path) -> None:
    started = opened(directory).spawn(a_request())
    again = opened(directory)
    assert [each.ref for each in again.list_instances()] == [started.ref]
    again.terminate(started.ref)
    eventually(lambda: again.find(started.ref) is None)


def test_a_killed_worker_is_gone_with_all_that_it_left_and_no_zombie_stays(directory: Path) -> None:
    provider = opened(directory, command=FAMILY)
    instance = provider.spawn(a_request())
    who = process_of(provider, instance)
    eventually(lambda: len(processes.family(who)) == 3)
    os.kill(who.pid, signal.SIGKILL)
    eventually(lambda: provider.find(instance.ref) is None)
    assert processes.family(who) == []
    assert processes.read_stat(who.pid) is None


def test_one_that_does_not_obey_is_killed_by_a_later_call(directory: Path) -> None:
    provider = opened(directory, command=DEAF, kill_after=timedelta(seconds=0.2))
    instance = provider.spawn(a_request())
    eventually(lambda: provider.logs(instance.ref, 1) == ["deaf"])
    provider.terminate(instance.ref)
    assert provider.find(instance.ref) is not None
    eventually(lambda: not provider.list_instances())


def test_a_start_that_was_never_written_down_is_found_by_its_marker(directory: Path) -> None:
    provider = opened(directory)
    instance = provider.spawn(a_request())
    who = process_of(provider, instance)
    with provider.state.locked():
        record = provider.state.find(instance.ref)
        assert record is not None
        provider.state.write(replace(record, process=None))
    assert [each.ref for each in opened(directory).list_instances()] == [instance.ref]
    assert process_of(provider, instance) == who


def test_a_start_that_never_happened_is_forgotten(directory: Path) -> None:
    provider = opened(directory)
    with provider.state.locked():
        provider.state.write(Record(name="gpu--test--nothing", gpu=0, created_at=datetime.now(UTC)))
    assert provider.list_instances() == []


def test_a_process_id_that_was_used_again_is_never_touched(directory: Path) -> None:
    provider = opened(directory)
    instance = provider.spawn(a_request())
    who = process_of(provider, instance)
    stranger = Record(
        name="gpu--test--old",
        gpu=0,
        created_at=datetime.now(UTC),
        process=replace(who, started_ticks=who.started_ticks - 1),
    )
    with provider.state.locked():
        provider.state.write(stranger)
    provider.terminate(InstanceRef(stranger.name))
    assert [each.ref for each in provider.list_instances()] == [instance.ref]
    assert processes.is_alive(who)


def test_there_are_as_many_workers_as_gpus_each_with_its_own(directory: Path) -> None:
    provider = opened(directory, fake_gpus=2, command=("/usr/bin/env",))
    with pytest.raises(CapacityUnavailable, match="all 2 GPUs"):
        for _ in range(3):
            opened(directory, fake_gpus=2).spawn(a_request())
    end_all(provider)
    instance = provider.spawn(a_request(HERDSMAN_WORKER_ID="w1"))
    eventually(lambda: "HERDSMAN_WORKER_ID=w1" in provider.logs(instance.ref, 50))
    said = provider.logs(instance.ref, 50)
    assert "FAKE_GPUS=1" in said
    assert "CUDA_VISIBLE_DEVICES=0" in said
    assert not [line for line in said if line.startswith("PATH=")]


def test_gpus_take_turns() -> None:
    assert next_gpu(3, [], None) == 0
    assert next_gpu(3, [0], 0) == 1
    assert next_gpu(3, [2], 2) == 0
    assert next_gpu(3, [0, 1, 2], 2) is None


def test_names_that_are_not_ours_and_commands_that_are_not_there_are_refused(directory: Path) -> None:
    with pytest.raises(ProviderRejected, match="no name of this deployment"):
        opened(directory).spawn(replace(a_request(), name="gpu--test--../../etc"))
    with pytest.raises(ProviderRejected, match="cannot be started"):
        opened(directory, command=("/nonexistent",)).spawn(a_request())
    assert opened(directory).list_instances() == []
