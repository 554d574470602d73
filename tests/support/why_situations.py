"""Situations in which a job waits, made in a real database by the same commands that make them in life."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import text

from herdsman.context import Services
from herdsman.explain.why import why_job
from herdsman.explain.wire import WhyOut
from herdsman.fleet import sql as fleet_sql
from herdsman.fleet import workers_sql
from herdsman.fleet.actions import ActionReason, Code
from herdsman.fleet.leader import LeaderPolicy
from herdsman.fleet.observe import FleetRules
from herdsman.ids import DEFAULT_POOL, JobId, WorkerId
from herdsman.jobs.assign import claim_for
from herdsman.jobs.model import Claim
from herdsman.jobs.protocol import ClaimRequest
from herdsman.limits.commands import PolicyBook, set_policy
from herdsman.limits.wire import written
from herdsman.ports import SystemClock
from tests.support.builders import a_job, a_worker
from tests.support.control_loop import FleetHarness, a_harness
from tests.support.databases import MovingClock
from tests.support.worker_calls import beat

MINUTE = timedelta(minutes=1)


@dataclass
class Site:
    """A herd whose leader may be there or away."""

    harness: FleetHarness
    clock: MovingClock

    @property
    def services(self) -> Services:
        rules = FleetRules(pools={DEFAULT_POOL: self.harness.policy})
        return replace(self.harness.services, fleet=lambda: rules)

    def lead(self) -> None:
        """Somebody leads at this moment, with no cycle run."""
        self.harness.replica().leadership.campaign()

    def cycles(self, count: int, later: timedelta = timedelta(seconds=30)) -> None:
        replica = self.harness.replica()
        for _ in range(count):
            self.harness.cycle(replica, later=later)
        self.lead()

    def limits(self, **policy: Any) -> None:
        set_policy(self.harness.services, written(policy))
        self.harness.services = replace(self.harness.services, rules=PolicyBook(self.services.database, SystemClock()))

    def job(self, **wanted: Any) -> JobId:
        return a_job(self.services, **wanted)

    def worker(self, name: str = "w1", *, types: Sequence[str] = (), pool: str = DEFAULT_POOL) -> WorkerId:
        """An active one that has asked for work."""
        worker = a_worker(self.services, name, pool=pool)
        beat(self.services, worker)
        self.ask(worker, types)
        return worker

    def worker_without_asking(self, name: str) -> WorkerId:
        return a_worker(self.services, name)

    def beat(self, name: str) -> None:
        beat(self.services, WorkerId(name))

    def held(self) -> Claim:
        """The claim of the only worker there is."""
        (worker,) = self.active()
        (claim,) = claim_for(self.services, {worker: ClaimRequest(resume=True)})
        return claim

    def ask(self, worker: WorkerId, types: Sequence[str] = ()) -> Sequence[Claim]:
        return claim_for(self.services, {worker: ClaimRequest(types=tuple(types))})

    def breaks(self, count: int) -> None:
        """So many workers that turn out broken."""
        why = ActionReason(Code.GPU_BROKEN, "Xid 79")
        for number in range(count):
            worker = a_worker(self.services, f"broken-{number}")
            self.services.database.transact(lambda tx, worker=worker: fleet_sql.fail(tx, worker, why))

    def all_busy(self) -> None:
        for worker in self.active():
            self.job(job_id=f"held-by-{worker}")
            assert self.ask(worker), f"{worker} got nothing to hold"

    def active(self) -> list[WorkerId]:
        query = text("SELECT id FROM workers WHERE status = 'active' ORDER BY id")
        return self.services.database.read(lambda tx: [WorkerId(row[0]) for row in tx.execute(query)])

    def why(self, job_id: JobId) -> WhyOut:
        return why_job(self.services, job_id)

    def given_out(self) -> set[JobId]:
        """What is claimed when every active worker asks for what it can run."""
        named = self.services.database.read(workers_sql.types_of_living)
        asks = {worker: ClaimRequest(types=tuple(named.get(worker, ()))) for worker in self.active()}
        return {claim.key.job_id for claim in claim_for(self.services, asks)}


@contextmanager
def a_site(services: Services, clock: MovingClock) -> Generator[Site]:
    with a_harness(services, clock) as harness:
        harness.leader = LeaderPolicy()
        harness.with_policy(min_workers=0)
        yield Site(harness, clock)
