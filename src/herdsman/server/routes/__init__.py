"""The routes, one module for each subject."""

from fastapi import APIRouter

from herdsman.server.routes import (
    access,
    dashboard,
    events,
    explain,
    files,
    fleet,
    health,
    jobs,
    leases,
    limits,
    pools,
    work,
    workers,
)

ROUTERS: tuple[APIRouter, ...] = (
    jobs.router,
    explain.router,
    files.router,
    work.router,
    pools.router,  # before the workers: `pool` is not one of them
    workers.router,
    leases.router,
    events.router,
    fleet.router,
    limits.router,
    health.router,
    access.router,
    dashboard.router,
)
