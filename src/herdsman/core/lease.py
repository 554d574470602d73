"""A lease as a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from herdsman.core.model import WorkerId
from herdsman.core.states import LeaseState


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    token: str
    agent: str
    state: LeaseState
    reason: str
    mode: str
    node_id: str | None
    gpu_uuid: str | None
    gpu_index: int | None
    memory_mb: int
    exclusive: bool
    ttl: timedelta | None
    """None when it lives as long as a worker's claim."""
    seq: int
    worker_id: WorkerId | None
    created_at: datetime
    expires_at: datetime
    last_heartbeat: datetime | None
    ended_at: datetime | None
    overruled: str | None
    metadata: Mapping[str, object]

    def over(self, now: datetime) -> bool:
        """By its state, or by its time although nobody has marked it yet."""
        late = self.worker_id is None and self.expires_at <= now
        return self.state is not LeaseState.ACTIVE or late
