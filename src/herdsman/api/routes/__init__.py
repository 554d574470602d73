"""The routes, one module for each subject."""

from fastapi import APIRouter

from herdsman.api.routes import (
    control,
    events,
    health,
    job_records,
    jobs,
    metrics,
    tokens,
    work,
    workers,
)

ROUTERS: tuple[APIRouter, ...] = (
    jobs.router,
    job_records.router,
    work.router,
    workers.router,
    events.router,
    control.router,
    health.router,
    metrics.router,
    tokens.router,
)
