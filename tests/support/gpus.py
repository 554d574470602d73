"""GPUs that exist only in the tables, and leases of them with everything filled in that a test does not name."""

from datetime import timedelta
from itertools import count
from typing import Any

from herdsman.context import Services
from herdsman.fleet.model import GpuDevice, GpuReport
from herdsman.ids import WorkerId
from herdsman.leases.commands import grant_lease, report_gpus
from herdsman.leases.rules import Lease, LeaseRequest, LeaseSpec, Refusal
from tests.support.builders import a_worker
from tests.support.worker_calls import beat

TOTAL = 24_000
_NUMBERS = count(1)


def a_device(index: int = 0, *, used_mb: int = 0, node: str = "n1", **given: Any) -> GpuDevice:
    usual: dict[str, Any] = {"uuid": f"GPU-{node}-{index}", "name": "Fake", "total_mb": TOTAL, **given}
    return GpuDevice(index=index, used_mb=used_mb, **usual)


def a_node(services: Services, node: str = "n1", gpus: int = 1, *, used_mb: int = 0) -> None:
    """It reports its GPUs, now."""
    report_gpus(services, node, [a_device(index, used_mb=used_mb, node=node) for index in range(gpus)])


def a_gpu_worker(services: Services, name: str = "w1", gpus: int = 1) -> WorkerId:
    worker = a_worker(services, name)
    told(services, worker, gpus)
    return worker


def told(services: Services, worker: WorkerId, gpus: int = 1, *, own_mb: int = 0) -> None:
    devices = tuple(a_device(index, used_mb=own_mb, own_mb=own_mb) for index in range(gpus))
    beat(
        services,
        worker,
        None,
        GpuReport(ready=True, seen=True, vram_total_mb=1, vram_used_mb=0, devices=devices, node="n1"),
    )


def asked(
    memory_mb: int = 8000, *, agent: str = "ann", ttl_s: float = 60, exclusive: bool = False, **given: Any
) -> LeaseRequest:
    places = {name: given.pop(name) for name in ("node", "gpu_index") if name in given}
    return LeaseRequest(
        agent=agent,
        spec=LeaseSpec(memory_mb=memory_mb, exclusive=exclusive, **places),
        ttl=timedelta(seconds=ttl_s),
        **given,
    )


def ask(services: Services, memory_mb: int = 8000, **given: Any) -> Lease | Refusal:
    return grant_lease(services, asked(memory_mb, **given), new_token=new_token, who="test")


def a_lease(services: Services, memory_mb: int = 8000, **given: Any) -> Lease:
    got = ask(services, memory_mb, **given)
    assert isinstance(got, Lease), got
    return got


def refused(services: Services, memory_mb: int = 8000, **given: Any) -> str:
    got = ask(services, memory_mb, **given)
    assert isinstance(got, Refusal), got
    return got.reason.value


def new_token() -> str:
    return f"token-{next(_NUMBERS):016}"
