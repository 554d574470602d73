"""What is only looked at, and many jobs at once, straight from the database."""

from collections.abc import Sequence
from dataclasses import dataclass

from herdsman.cli.look_door import Kind
from herdsman.control import decisions as decided
from herdsman.control.answers import why
from herdsman.control.commands.workers import drain_worker
from herdsman.control.eta import eta
from herdsman.control.failures import cancel_jobs, list_failures, requeue_group, retry_jobs
from herdsman.control.herd import living_herd
from herdsman.control.money import cost
from herdsman.control.overview import overview
from herdsman.control.services import Services
from herdsman.control.shadow_report import report
from herdsman.control.timeline import timeline
from herdsman.core.access import Role
from herdsman.core.model import JobId, WorkerId
from herdsman.server.access import verbs
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


@dataclass(frozen=True)
class DirectLooks:
    services: Services

    def overview(self) -> OverviewOut:
        return overview(self.services)

    def herd(self) -> HerdOut:
        return living_herd(self.services)

    def why(self, kind: Kind, named: str) -> WhyOut:
        return why(self.services, kind, named)

    def eta(self, job_id: str) -> EtaOut:
        return eta(self.services, JobId(job_id))

    def timeline(self, job_id: str) -> TimelineOut:
        return timeline(self.services, JobId(job_id))

    def decisions(
        self, after: str | None = None, limit: int = 50, pool: str | None = None, *, acted: bool = False
    ) -> DecisionsOut:
        return decided.list_decisions(self.services, after=after, limit=limit, pool=pool, acted=acted)

    def decision(self, cycle: int) -> DecisionOut:
        return decided.find_decision(self.services, cycle)

    def shadow(self, hours: int = 24) -> ShadowReportOut:
        return report(self.services, hours)

    def failures(self, since_hours: int = 24) -> FailuresOut:
        return list_failures(self.services, since_hours)

    def requeue_failures(self, wanted: RequeueIn) -> BulkOut:
        return requeue_group(self.services, wanted.key, hours=wanted.since_hours, limit=wanted.limit)

    def cost(self, days: int = 7) -> CostOut:
        return cost(self.services, days)

    def cancel_many(self, job_ids: Sequence[str]) -> BulkOut:
        return cancel_jobs(self.services, [JobId(each) for each in job_ids])

    def retry_many(self, job_ids: Sequence[str]) -> BulkOut:
        return retry_jobs(self.services, [JobId(each) for each in job_ids])

    def drain_worker(self, worker_id: str) -> DrainedOut:
        state, news = drain_worker(self.services, WorkerId(worker_id))
        return DrainedOut(worker_id=worker_id, status=state, already=not news)

    def me(self) -> MeOut:
        """Who can open the database may do everything."""
        return MeOut(name="the database itself", role=Role.ADMIN, can=verbs(Role.ADMIN))
