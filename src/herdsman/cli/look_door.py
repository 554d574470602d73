"""What is only looked at, and many jobs at once: over HTTP (`api_looks`), or from the database (`direct_looks`)."""

from collections.abc import Sequence
from typing import Literal, Protocol

from herdsman.wire.explain import EtaOut, TimelineOut, WhyOut
from herdsman.wire.fleet import (
    CostOut,
    DecisionOut,
    DecisionsOut,
    DrainedOut,
    HerdOut,
    MeOut,
    OverviewOut,
    ShadowReportOut,
)
from herdsman.wire.jobs import BulkOut, FailuresOut, RequeueIn

Kind = Literal["job", "worker", "pool"]


class LookDoor(Protocol):
    def overview(self) -> OverviewOut: ...

    def herd(self) -> HerdOut:
        """Every worker that lives, with the jobs that it holds and its GPUs."""
        ...

    def why(self, kind: Kind, named: str) -> WhyOut: ...

    def eta(self, job_id: str) -> EtaOut: ...

    def timeline(self, job_id: str) -> TimelineOut: ...

    def decisions(
        self, after: str | None = None, limit: int = 50, pool: str | None = None, *, acted: bool = False
    ) -> DecisionsOut: ...

    def decision(self, cycle: int) -> DecisionOut: ...

    def shadow(self, hours: int = 24) -> ShadowReportOut:
        """Where a second scaling policy would have done something else."""
        ...

    def failures(self, since_hours: int = 24) -> FailuresOut: ...

    def requeue_failures(self, wanted: RequeueIn) -> BulkOut: ...

    def cost(self, days: int = 7) -> CostOut: ...

    def cancel_many(self, job_ids: Sequence[str]) -> BulkOut:
        """Each is answered by itself; at most 500."""
        ...

    def retry_many(self, job_ids: Sequence[str]) -> BulkOut: ...

    def drain_worker(self, worker_id: str) -> DrainedOut: ...

    def me(self) -> MeOut: ...
