"""The routes, one module for each subject."""

from fastapi import APIRouter

from herdsman.api.dashboard import pages
from herdsman.api.routes import (
    about,
    control,
    dashboard,
    events,
    files,
    gpus,
    health,
    holds,
    job_outlook,
    job_records,
    jobs,
    leases,
    metrics,
    policy,
    pools,
    tokens,
    work,
    workers,
)

ROUTERS: tuple[APIRouter, ...] = (
    jobs.router,
    job_records.router,
    job_outlook.router,
    files.router,
    work.router,
    pools.router,  # before the workers: `pool` is not one of them
    workers.router,
    leases.router,
    gpus.router,
    events.router,
    control.router,
    policy.router,
    holds.router,
    health.router,
    metrics.router,
    tokens.router,
    dashboard.router,
    about.router,
    pages.router,
)
