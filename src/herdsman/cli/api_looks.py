"""What is only looked at, and many jobs at once, over HTTP."""

from collections.abc import Sequence

from herdsman.cli.asking import Asking
from herdsman.cli.look_door import Kind
from herdsman.client import calls
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


class ApiLooks(Asking):
    """The part of a door to a server that looks."""

    def overview(self) -> OverviewOut:
        return self._ask(calls.overview())

    def herd(self) -> HerdOut:
        return self._ask(calls.herd())

    def why(self, kind: Kind, named: str) -> WhyOut:
        return self._ask(calls.why(kind, named))

    def eta(self, job_id: str) -> EtaOut:
        return self._ask(calls.eta(job_id))

    def timeline(self, job_id: str) -> TimelineOut:
        return self._ask(calls.timeline(job_id))

    def decisions(
        self, after: str | None = None, limit: int = 50, pool: str | None = None, *, acted: bool = False
    ) -> DecisionsOut:
        return self._ask(calls.decisions(after, limit, pool, acted=acted))

    def decision(self, cycle: int) -> DecisionOut:
        return self._ask(calls.decision(cycle))

    def shadow(self, hours: int = 24) -> ShadowReportOut:
        return self._ask(calls.shadow(hours))

    def failures(self, since_hours: int = 24) -> FailuresOut:
        return self._ask(calls.failures(since_hours))

    def requeue_failures(self, wanted: RequeueIn) -> BulkOut:
        return self._ask(calls.requeue(wanted))

    def cost(self, days: int = 7) -> CostOut:
        return self._ask(calls.cost(days))

    def cancel_many(self, job_ids: Sequence[str]) -> BulkOut:
        return self._ask(calls.cancel_many(job_ids))

    def retry_many(self, job_ids: Sequence[str]) -> BulkOut:
        return self._ask(calls.retry_many(job_ids))

    def drain_worker(self, worker_id: str) -> DrainedOut:
        return self._ask(calls.drain_worker(worker_id))

    def me(self) -> MeOut:
        return self._ask(calls.me())
