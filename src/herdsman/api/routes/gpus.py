"""The inventory of GPUs: reported by nodes without a worker, looked at by people."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from herdsman.api.auth import Who
from herdsman.api.routes.measured import Measured
from herdsman.api.state import Server
from herdsman.control.commands import gpus
from herdsman.store.cursor import LARGEST_PAGE
from herdsman.wire.leases import GpuOut, GpusIn, GpusOut, TakenOut

router = APIRouter(route_class=Measured, tags=["leases"])


@router.get("/gpus")
def list_gpus(
    _who: Who,
    server: Server,
    after: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
) -> GpusOut:
    """By their UUIDs, each with what was measured on it last and what is leased of it."""
    page = gpus.list_gpus(server.services, after=after, limit=limit)
    return GpusOut(gpus=tuple(GpuOut.of(gpu, leased) for gpu, leased in page.gpus), next=page.next)


@router.post("/nodes/{node_id}/gpus")
def report_gpus(node_id: str, told: GpusIn, _who: Who, server: Server) -> TakenOut:
    """What was measured on a machine that runs no worker; send it every few seconds."""
    age = timedelta(seconds=told.age_seconds)
    taken = gpus.report_gpus(server.services, node_id, told.devices(), age)
    server.leases.ring()
    return TakenOut(taken=tuple(taken))


@router.post("/gpus/{uuid}/clear")
def clear_gpu(uuid: str, who: Who, server: Server) -> GpuOut:
    """Lifts a quarantine: what is in use on the GPU now counts as outsiders' from here on."""
    cleared = gpus.clear_gpu(server.services, uuid, who=who.who)
    server.leases.ring()
    return GpuOut.of(cleared, 0)
