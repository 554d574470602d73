"""The control loop and the health of a replica, as people and probes see them."""

from datetime import datetime
from typing import Any

from herdsman.wire.model import Reply


class CycleOut(Reply):
    """What one cycle saw and did."""

    timestamp: datetime | None
    actions: dict[str, int]
    status: dict[str, int]
    skipped: str
    complete: bool
    steps: tuple[dict[str, Any], ...]


class LeaderOut(Reply):
    leads: bool
    """Whether somebody leads now; otherwise the rest tells of who led last."""
    mine: bool
    holder: str | None = None
    epoch: int | None = None
    since: datetime | None = None
    expires_at: datetime | None = None


class LiveOut(Reply):
    status: str


class ReadyOut(LiveOut):
    checks: dict[str, str]


class HealthOut(ReadyOut):
    version: str
    database: str
    leads: bool
    jobs: dict[str, int]
