"""The inventory of GPUs: reported by nodes without a worker, looked at by people."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from herdsman.api.auth import Who
from herdsman.api.context import Context
from herdsman.api.routes.desk import AtDesk
from herdsman.api.routes.measured import Measured
from herdsman.control.commands import gpus
from herdsman.db.paging import LARGEST_PAGE
from herdsman.wire.leases import GpuOut, GpusIn, GpusOut, TakenOut

router = APIRouter(route_class=Measured, tags=["leases"])


@router.get("/gpus")
def list_gpus(
    _who: Who,
    context: Context,
    after: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
) -> GpusOut:
    """By their UUIDs, each with what was measured on it last and what is leased of it."""
    page = gpus.list_gpus(context.services, after=after, limit=limit)
    return GpusOut(gpus=tuple(GpuOut.of(gpu, leased) for gpu, leased in page.gpus), next=page.next)


@router.post("/nodes/{node_id}/gpus")
def report_gpus(node_id: str, told: GpusIn, _who: Who, context: Context, desk: AtDesk) -> TakenOut:
    """What was measured on a machine that runs no worker; send it every few seconds."""
    age = timedelta(seconds=told.age_seconds)
    taken = gpus.report_gpus(context.services, node_id, told.devices(), age)
    desk.leases.ring()
    return TakenOut(taken=tuple(taken))


@router.post("/gpus/{uuid}/clear")
def clear_gpu(uuid: str, who: Who, context: Context, desk: AtDesk) -> GpuOut:
    """Lifts a quarantine: what is in use on the GPU now counts as outsiders' from here on."""
    cleared = gpus.clear_gpu(context.services, uuid, who=who.who)
    desk.leases.ring()
    return GpuOut.of(cleared, 0)
