"""Metrics in the text format of Prometheus."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from herdsman.api.auth import Who
from herdsman.api.routes.desk import AtDesk
from herdsman.api.routes.measured import Measured

router = APIRouter(route_class=Measured, tags=["health"])


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Metrics."}},
)
def metrics(_who: Who, desk: AtDesk) -> Response:
    return Response(generate_latest(desk.metrics.registry), media_type=CONTENT_TYPE_LATEST)
