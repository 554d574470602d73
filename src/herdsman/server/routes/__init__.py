"""The routes, one module for each subject."""

from fastapi import APIRouter

from herdsman.access import routes as access_routes
from herdsman.explain import routes as explain_routes
from herdsman.fleet import routes as fleet_routes
from herdsman.jobs import routes as jobs_routes
from herdsman.leases import routes as leases_routes
from herdsman.limits import routes as limits_routes
from herdsman.pools import routes as pools_routes
from herdsman.server.routes import dashboard, events, files, health

ROUTERS: tuple[APIRouter, ...] = (
    jobs_routes.router,
    explain_routes.router,
    files.router,
    jobs_routes.worker_router,
    pools_routes.router,  # before the workers: `pool` is not one of them
    fleet_routes.workers_router,
    leases_routes.router,
    events.router,
    fleet_routes.router,
    limits_routes.router,
    health.router,
    access_routes.router,
    dashboard.router,
)
