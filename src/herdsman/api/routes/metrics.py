"""Metrics in the text format of Prometheus."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from herdsman.api.auth import Who
from herdsman.api.routes.measured import Measured
from herdsman.api.state import Server

router = APIRouter(route_class=Measured, tags=["health"])

# Not those of all requests: these may all wait for a database that is away, and who watches has to see that.
_threads = ThreadPoolExecutor(2, thread_name_prefix="metrics")


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Metrics."}},
)
async def metrics(_who: Who, server: Server) -> Response:
    """Also while the database is away: what it says is then as old as `herdsman_look_age_seconds` tells."""
    page = await asyncio.get_running_loop().run_in_executor(
        _threads, generate_latest, server.metrics.registry
    )
    return Response(page, media_type=CONTENT_TYPE_LATEST)
