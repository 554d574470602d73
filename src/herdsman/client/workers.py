"""Workers, as people and their programs see them."""

from datetime import datetime
from typing import Any

from pydantic import Field

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
    cost_per_hour: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])


class WorkersOut(Reply):
    workers: tuple[WorkerOut, ...]
