"""Is it alive, can it work, and how is it: for probes, for Prometheus and for people."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

import herdsman
from herdsman.errors import HerdsmanError
from herdsman.fleet.wire import HealthOut, LiveOut, ReadyOut
from herdsman.jobs.commands import count_jobs
from herdsman.server.readiness import FINE
from herdsman.server.request import ApiRoute, Who
from herdsman.server.state import Server, ServerState

router = APIRouter(route_class=ApiRoute, tags=["health"])

HEALTHY, UNHEALTHY = "healthy", "unhealthy"


@router.get("/health/live")
async def live() -> LiveOut:
    """The process answers. Nothing is asked of anybody, so that a slow database kills no process."""
    return LiveOut(status=HEALTHY)


@router.get("/health/ready", responses={503: {"model": ReadyOut}})
def ready(response: Response, _who: Who, server: Server) -> ReadyOut:
    """Whether it can take requests: the database answers, with the right schema, and every loop runs."""
    found = _ready(server, response)
    return ReadyOut(**found)


@router.get("/health", responses={503: {"model": HealthOut}})
def health(response: Response, _who: Who, server: Server) -> HealthOut:
    found = _ready(server, response)
    control, counts = server.control, dict[str, int]()
    if found["status"] == HEALTHY:
        with suppress(HerdsmanError):  # the database went away this moment; the next request will say so
            counts = {str(state): count for state, count in count_jobs(server.services).items() if count}
    return HealthOut(
        **found,
        version=herdsman.__version__,
        database=server.services.database.backend,
        leads=control is not None and control.leadership.term is not None,
        streams="off" if server.bus is None else server.bus.said,
        jobs=counts,
    )


def _ready(server: ServerState, response: Response) -> dict[str, Any]:
    checks = dict(server.readiness.checks())
    fine = all(said == FINE for said in checks.values())
    response.status_code = 200 if fine else 503
    return {"status": HEALTHY if fine else UNHEALTHY, "checks": checks}


# Not those of all requests: these may all wait for a database that is away, and who watches has to see that.
_threads = ThreadPoolExecutor(2, thread_name_prefix="metrics")


@router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}, "description": "Metrics."}}
)
async def metrics(_who: Who, server: Server) -> Response:
    """Also while the database is away: what it says is then as old as `herdsman_look_age_seconds` tells."""
    page = await asyncio.get_running_loop().run_in_executor(_threads, generate_latest, server.metrics.registry)
    return Response(page, media_type=CONTENT_TYPE_LATEST)
