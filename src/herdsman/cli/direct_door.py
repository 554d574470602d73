"""Jobs straight from the database, for who sits at the control plane's own machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from uuid import uuid4

from herdsman.cli.direct_herd import DirectHerd
from herdsman.cli.direct_leases import DirectLeases
from herdsman.cli.direct_looks import DirectLooks
from herdsman.cli.direct_pools import DirectPools
from herdsman.cli.lease_door import LeaseDoor
from herdsman.cli.pool_door import PoolDoor
from herdsman.control import commands
from herdsman.control.commands import holds, policy
from herdsman.control.commands.pools import evict_pool
from herdsman.control.requests import ask_leader
from herdsman.core.errors import Conflict, TooMany
from herdsman.core.model import JobFilter, JobId, PoolId
from herdsman.core.states import JOB
from herdsman.ports import Clock
from herdsman.store import leader
from herdsman.wire.fleet import CycleOut
from herdsman.wire.jobs import (
    AttemptOut,
    AttemptsOut,
    EventOut,
    EventsOut,
    JobDetail,
    JobIn,
    JobOut,
    JobsOut,
    LogOut,
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


@dataclass(frozen=True)
class DirectDoor(DirectLooks, DirectHerd):
    clock: Clock

    def alive(self) -> None:
        """The database was looked at when it was opened."""

    def submit(self, jobs: Sequence[JobIn]) -> Sequence[SubmittedOut]:
        done = commands.submit_jobs(self.services, [job.new_job() for job in jobs])
        return [SubmittedOut.of(each) for each in done]

    def page(self, wanted: JobFilter, after: str | None, limit: int) -> JobsOut:
        page = commands.list_jobs(self.services, wanted, after=after, limit=limit)
        return JobsOut(jobs=tuple(JobOut.of(each) for each in page.jobs), next=page.next)

    def look(self, job_id: str) -> JobDetail:
        return JobDetail.of(commands.find_job(self.services, JobId(job_id)))

    def attempts(self, job_id: str) -> AttemptsOut:
        found = commands.find_attempts(self.services, JobId(job_id))
        return AttemptsOut(attempts=tuple(AttemptOut.of(each) for each in found))

    def history(self, job_id: str) -> EventsOut:
        found = commands.find_history(self.services, JobId(job_id))
        return EventsOut(events=tuple(EventOut.of(each) for each in found))

    def result(self, job_id: str) -> ResultOut | None:
        job = commands.find_job(self.services, JobId(job_id))
        return ResultOut.of(job) if job.state in JOB.terminal else None

    def logs(self, job_id: str, since: str | None) -> LogsOut:
        page = commands.read_logs(self.services, JobId(job_id), since=since)
        pieces = (
            LogOut(claim_token=each.claim_token, first=each.first, ts=each.ts, lines=each.lines)
            for each in page.pieces
        )
        return LogsOut(pieces=tuple(pieces), next=page.next, ended=page.ended)

    def cancel(self, job_id: str) -> str:
        return commands.cancel_job(self.services, JobId(job_id))

    def retry(self, job_id: str, wanted: RetryIn) -> None:
        if wanted.edit:
            commands.requeue_edited_job(self.services, JobId(job_id), wanted.payload)
        else:
            commands.requeue_job(self.services, JobId(job_id))

    def hold(self, wanted: PauseIn) -> HoldOut:
        return HoldOut.of(
            holds.pause(self.services, wanted.meant(), why=wanted.why, duration=wanted.duration)
        )

    def resume(self, wanted: ScopeIn) -> ResumedOut:
        scope = wanted.meant()
        return ResumedOut(scope=scope, resumed=holds.resume(self.services, scope))

    def drain(self, wanted: DrainIn) -> HoldOut:
        return HoldOut.of(holds.drain(self.services, why=wanted.why))

    def holds(self) -> HoldsOut:
        return HoldsOut.of(holds.find_holds(self.services))

    def evict(self, pool: str) -> PoolOut:
        return PoolOut.of(evict_pool(self.services, PoolId(pool)))

    @property
    def pools(self) -> PoolDoor:
        return DirectPools(self.services)

    @property
    def leases(self) -> LeaseDoor:
        return DirectLeases(self.services)

    def reconcile(self) -> CycleOut:
        """No server runs here: one elsewhere may lead."""
        now, term = self.services.database.read(lambda tx: (tx.now(), leader.find(tx)))
        if term is None or term.expires_at <= now:
            raise Conflict("nobody leads now: run a cycle here with herdsman cycle")
        done = ask_leader(self.services, uuid4().hex, "admin", self.clock, Event())
        if done is None:
            raise TooMany(f"{term.holder} leads, but did not answer: try again")
        return CycleOut.model_validate({**done, "forwarded": True})

    def policy(self, version: int | None) -> PolicyOut:
        return policy.find_policy(self.services, version).shown()

    def set_policy(self, wanted: PolicyIn) -> EditionOut:
        changed = policy.set_policy(
            self.services, wanted.policy, note=wanted.note, base_version=wanted.base_version
        )
        return changed.compared()

    def policy_history(self, after: int | None, limit: int) -> HistoryOut:
        return policy.policy_history(self.services, after=after, limit=limit).shown()

    def pause(self, duration: timedelta) -> None:
        self.clock.sleep(duration)

    def close(self) -> None:
        self.services.database.close()
