"""Where the commands about jobs go: over HTTP to a server, or straight to the database of this machine."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from herdsman.cli.herd_door import HerdDoor
from herdsman.cli.lease_door import LeaseDoor
from herdsman.cli.look_door import LookDoor
from herdsman.cli.pool_door import PoolDoor
from herdsman.core.model import JobFilter
from herdsman.wire.fleet import CycleOut
from herdsman.wire.jobs import (
    AttemptsOut,
    EventsOut,
    JobDetail,
    JobIn,
    JobsOut,
    LogsOut,
    ResultOut,
    RetryIn,
    SubmittedOut,
)
from herdsman.wire.limits import (
    DrainIn,
    EditionOut,
    HistoryOut,
    HoldOut,
    HoldsOut,
    PauseIn,
    PolicyIn,
    PolicyOut,
    ResumedOut,
    ScopeIn,
)
from herdsman.wire.pools import PoolOut


class Door(LookDoor, HerdDoor, Protocol):
    def alive(self) -> None:
        """Raises when nobody is behind it."""
        ...

    def submit(self, jobs: Sequence[JobIn]) -> Sequence[SubmittedOut]: ...

    def page(self, wanted: JobFilter, after: str | None, limit: int) -> JobsOut: ...

    def look(self, job_id: str) -> JobDetail: ...

    def attempts(self, job_id: str) -> AttemptsOut: ...

    def history(self, job_id: str) -> EventsOut: ...

    def result(self, job_id: str) -> ResultOut | None:
        """None while the job has not ended."""
        ...

    def logs(self, job_id: str, since: str | None) -> LogsOut: ...

    def cancel(self, job_id: str) -> str:
        """The job's status from here on."""
        ...

    def retry(self, job_id: str, wanted: RetryIn) -> None: ...

    def hold(self, wanted: PauseIn) -> HoldOut: ...

    def resume(self, wanted: ScopeIn) -> ResumedOut: ...

    def drain(self, wanted: DrainIn) -> HoldOut: ...

    def holds(self) -> HoldsOut: ...

    def evict(self, pool: str) -> PoolOut: ...

    @property
    def pools(self) -> PoolDoor: ...

    @property
    def leases(self) -> LeaseDoor: ...

    def reconcile(self) -> CycleOut:
        """One cycle of whoever leads."""
        ...

    def policy(self, version: int | None) -> PolicyOut:
        """The one in force, or an earlier one."""
        ...

    def set_policy(self, wanted: PolicyIn) -> EditionOut: ...

    def policy_history(self, after: int | None, limit: int) -> HistoryOut: ...

    def pause(self, duration: timedelta) -> None: ...

    def close(self) -> None: ...
