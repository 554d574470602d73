"""What every route may ask for."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from herdsman.api.failures import Failures
from herdsman.api.limits import Limits
from herdsman.control.authenticator import Authenticator
from herdsman.control.keyring import Keyring
from herdsman.control.services import Services
from herdsman.core.errors import ClaimsHeld
from herdsman.core.pools import PoolStanding
from herdsman.ports import ResultFiles
from herdsman.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    services: Services
    authenticator: Authenticator
    keyring: Keyring
    dispatcher: Any = None
    control: Any | None = None
    """The control loop of this replica, with `leadership`, `reconciler` and `provider`."""
    bus: Any | None = None
    """Redis Streams, where there is a Redis; no word to it waits or fails."""
    results: ResultFiles | None = None
    """The files of jobs, where this server can reach them."""
    failures: Failures
    limits: Limits = field(default_factory=Limits)
    settings: Settings | None = None
    """Those that it was started with, to be shown."""
    safe_mode: bool = False
    """Only workers change anything."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the process ends: whoever waits for a client answers at once."""

    def require_database(self) -> None:
        """Raises `ClaimsHeld` in an outage in which this replica can answer for the claims of workers.

        At once, and to anybody: they cannot be looked up, and a worker must hear of it before it stops its jobs.
        """
        if self.control is not None and self.control.leadership.holds_claims:
            raise ClaimsHeld("the database is away: go on with your jobs, and send the next heartbeat")

    def announce_pool(self, event: str, standing: PoolStanding) -> PoolStanding:
        """Where there are streams, the leader hears of it at once; else with its next cycle."""
        pool = standing.pool
        if self.bus is not None:
            self.bus.announce_pool(
                event,
                pool.pool_id,
                model_id=pool.serves.model,
                adapter=pool.serves.adapter,
                variant=pool.serves.variant,
                desired_workers=pool.desired_workers,
            )
        return standing

    def mirror_service(self, job_id: str, mapping: Mapping[str, str]) -> None:
        """Where there is a Redis, it shows where a job is on an external service (S3-04)."""
        if self.bus is not None:
            self.bus.mirror(job_id, mapping)

    def announce_queued(self, count: int) -> None:
        """So many jobs were queued again, by a person."""
        if count:
            self.dispatcher.ring()
            if self.bus is not None:
                self.bus.resync_soon()

    def announce_control(self, event: str, by: str, scope: str = "all") -> None:
        if self.bus is not None:
            self.bus.announce_control(event, by, scope)


async def context(request: Request) -> ApiContext:
    """A plain function would be given a thread, for a look at a field."""
    found: ApiContext = request.app.state.context
    return found


Context = Annotated[ApiContext, Depends(context)]
