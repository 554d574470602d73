"""Workers, as people and their programs see them."""

from datetime import datetime
from typing import Any

from pydantic import Field

from herdsman import __version__
from herdsman.core.model import Worker
from herdsman.core.releases import VERSION, misfit
from herdsman.core.states import WORKER
from herdsman.wire.model import Reply


class WorkerOut(Reply):
    worker_id: str
    pool: str
    status: str
    reason: str
    instance_type: str | None = None
    created_at: datetime
    entered_status_at: datetime
    last_heartbeat: datetime | None = None
    error: str | None = None
    version: str | None = Field(default=None, description="Of the program that it runs, where that is known.")
    warning: str | None = Field(default=None, description="What does not fit, although it works.")
    cost_per_hour: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])

    @staticmethod
    def of(worker: Worker) -> "WorkerOut":
        version = worker.metadata.get(VERSION)
        return WorkerOut(
            worker_id=worker.id,
            pool=worker.pool,
            status=worker.state,
            reason=worker.reason,
            instance_type=worker.instance_type,
            created_at=worker.created_at,
            entered_status_at=worker.entered_state_at,
            last_heartbeat=worker.last_heartbeat,
            error=worker.error,
            version=None if version is None else str(version),
            warning=misfit(worker.metadata, __version__) if worker.state in WORKER.live else None,
            cost_per_hour=worker.cost_per_hour,
            metadata=dict(worker.metadata),
        )


class WorkersOut(Reply):
    workers: tuple[WorkerOut, ...]
    next: str | None = Field(
        default=None, description="Send it as `after` for the page that follows; null on the last."
    )
