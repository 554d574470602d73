"""Leases of a real GPU: what outsiders use is not given out, and what a holder leaves behind is noticed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.db.upgrade import upgrade
from herdsman.jobs.model import JobPolicy
from herdsman.leases.commands import grant_lease, list_gpus, release_lease, report_gpus
from herdsman.leases.rules import Lease, LeasePolicy, LeaseRequest, LeaseSpec, Refusal
from herdsman.ports import SystemClock
from herdsman.wire import new_job_id
from herdsman.worker.gpu import Nvml

ROOT = Path(__file__).parents[2]
NODE = "box"

pytestmark = [
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="this machine has no NVIDIA GPU"),
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed, which the outsider uses"),
    pytest.mark.timeout(300),
]
_numbers = count(1)


@pytest.fixture
def services(tmp_path: Path) -> Generator[Services]:
    database = Database(f"sqlite:///{tmp_path}/leases.db", clock=SystemClock())
    upgrade(database)
    quick = LeasePolicy(empty_within=timedelta(0))
    yield Services(database, JobPolicy(), new_job_id, quick)
    database.close()


@contextmanager
def outsider(mb: int) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.gpu.outsider", str(mb)]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ}, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline().startswith("held")
            yield running
        finally:
            running.kill()


def looked(services: Services) -> int:
    """Measured and reported, as `herdsman gpus report` does it; the memory of the GPU."""
    report_gpus(services, NODE, Nvml()().devices)
    return list_gpus(services, after=None, limit=10).gpus[0][0].total_mb


def asked(services: Services, memory_mb: int, *, exclusive: bool = False) -> Lease | Refusal:
    spec = LeaseSpec(memory_mb=memory_mb, exclusive=exclusive)
    wanted = LeaseRequest(agent="ann", spec=spec, ttl=timedelta(minutes=5))
    return grant_lease(services, wanted, new_token=lambda: f"token-{next(_numbers):016}", who="test")


def test_a_lease_is_refused_while_an_outsider_fills_the_memory(services: Services) -> None:
    total = looked(services)
    first = asked(services, total // 2)
    assert isinstance(first, Lease), first
    release_lease(services, first.token, who="ann")
    looked(services)
    with outsider(total * 9 // 10):
        looked(services)
        refusal = asked(services, total // 2)
        print("with an outsider on", total * 9 // 10, "of", total, "MB:", refusal)
        assert isinstance(refusal, Refusal)
        assert refusal.reason == "outsiders"
        assert isinstance(asked(services, 1000, exclusive=True), Refusal)
    looked(services)
    again = asked(services, total // 2)
    assert isinstance(again, Lease), again


def test_a_gpu_with_something_left_on_it_is_quarantined_until_it_is_empty(services: Services) -> None:
    """L3: the holder gave its lease back, and a process of it lives on."""
    total = looked(services)
    lease = asked(services, total // 2, exclusive=True)
    assert isinstance(lease, Lease), lease
    with outsider(total // 4):
        looked(services)
        release_lease(services, lease.token, who="ann")
        assert isinstance(asked(services, 1000), Refusal), "nobody has looked yet"
        looked(services)
        refusal = asked(services, 1000)
        ((gpu, _),) = list_gpus(services, after=None, limit=10).gpus
        print("quarantined:", gpu.quarantine_reason)
        assert isinstance(refusal, Refusal)
        assert refusal.reason == "quarantined"
    looked(services)
    assert isinstance(asked(services, 1000), Lease)
