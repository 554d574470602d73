"""The GPUs: reported by machines without a worker, listed, and taken out of quarantine."""

from collections.abc import Sequence
from datetime import timedelta

import structlog

from herdsman.control.services import Services
from herdsman.core.errors import InvalidRequest, NotFound
from herdsman.core.gpu import GpuDevice
from herdsman.core.leasing import Gpu
from herdsman.core.request import check_name
from herdsman.store import gpu_list, gpus
from herdsman.store.gpu_bounds import bounded

log = structlog.get_logger()


def report_gpus(
    services: Services, node: str, devices: Sequence[GpuDevice], age: timedelta = timedelta(0)
) -> list[str]:
    """What somebody saw on a node without a worker; the GPUs whose word was taken.

    One that a live worker reports is left to the worker, which can tell its own memory from others'.
    """
    check_name("node_id", node, 128)
    if len(devices) > gpus.MOST_OF_NODE:
        raise InvalidRequest(f"{len(devices)} GPUs were reported, the limit of a node is {gpus.MOST_OF_NODE}")
    found = bounded(devices, gpus.MOST_OF_NODE)
    told = gpus.Reporter(node=node)
    return services.database.transact(lambda tx: gpus.tell(tx, told, found, age, services.leasing))


def list_gpus(services: Services, *, after: str | None, limit: int) -> gpu_list.GpuPage:
    return services.database.read(lambda tx: gpu_list.page(tx, after=after, limit=limit))


def clear_gpu(services: Services, uuid: str, *, who: str) -> Gpu:
    """Lift a quarantine: what is in use on the GPU now counts as outsiders', and is not waited for."""
    if len(uuid) > 64 or "\0" in uuid:
        raise NotFound("there is no such GPU")
    cleared = services.database.transact(lambda tx: gpu_list.clear(tx, uuid))
    log.info("gpu.cleared_by_hand", gpu=cleared.uuid, who=who, outside_mb=cleared.outside_mb)
    return cleared
