"""Situations in which no worker is free and none is added, or not yet: the ceiling, the provider, the leader."""

from collections.abc import Generator, Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from herdsman.context import Services
from herdsman.explain.rules import WaitCode
from herdsman.explain.why import why_pool, why_worker
from herdsman.fleet.actions import Code
from herdsman.fleet.commands import register_worker
from herdsman.fleet.model import GpuReport, Promotion
from herdsman.ids import DEFAULT_POOL, JobId, PoolId, WorkerId
from herdsman.jobs.commands import find_job
from herdsman.jobs.protocol import WorkerHeartbeat
from herdsman.jobs.worker_commands import complete_job, record_heartbeat
from herdsman.limits.commands import resume
from herdsman.limits.rules import scope_of
from herdsman.pools.rules import ServedBy
from herdsman.states import JobStatus
from herdsman.testing.fakes.runpod import Fault
from tests.support.databases import MovingClock, every_database, one_database
from tests.support.pools import LLM, a_pool
from tests.support.why_promises import UTC, Expected, Situation, SituationContract, each_of
from tests.support.why_situations import MINUTE, Site, a_site
from tests.support.worker_calls import beat

pytestmark = one_database


@pytest.fixture
def site(services: Services, clock: MovingClock) -> Iterator[Site]:
    with a_site(services, clock) as site:
        yield site


def at_the_ceiling(site: Site) -> Generator[JobId]:
    site.harness.with_policy(min_workers=2, max_workers=2)
    site.cycles(3)
    site.all_busy()
    site.lead()
    yield site.job()
    site.harness.with_policy(max_workers=3)


def killed_by_switch(site: Site) -> Generator[JobId]:
    site.harness.with_policy(max_workers=0)
    site.lead()
    yield site.job()
    site.harness.with_policy(max_workers=1)


def breaker_open(site: Site) -> Generator[JobId]:
    site.breaks(6)
    job = site.job()
    site.cycles(2)
    yield job
    site.clock.advance(timedelta(hours=1))
    site.lead()


def budget_spent(site: Site) -> Generator[JobId]:
    site.harness.with_policy(min_workers=1, max_workers=5, budget_per_day=Decimal("0.0001"))
    site.cycles(3)
    site.all_busy()
    for number in range(10):
        site.job(job_id=f"more-{number}")
    yield site.job()
    site.harness.with_policy(budget_per_day=Decimal(1000))


def no_capacity(site: Site) -> Generator[JobId]:
    site.harness.with_policy(min_workers=1)
    site.harness.fake.faults.turn_on(Fault.NO_CAPACITY)
    job = site.job()
    site.cycles(3, later=timedelta(seconds=5))
    yield job
    site.harness.fake.faults.turn_off(Fault.NO_CAPACITY)
    site.clock.advance(10 * MINUTE)
    site.cycles(3)


def provider_rejects(site: Site) -> Generator[JobId]:
    site.harness.with_policy(min_workers=1)
    site.harness.fake.faults.turn_on(Fault.UNAUTHORIZED, only=frozenset({"create"}))
    job = site.job()
    site.cycles(2)
    yield job
    resume(site.services, scope_of(pool=DEFAULT_POOL))


def provider_out_of_sight(site: Site) -> Generator[JobId]:
    site.harness.with_policy(min_workers=1)
    site.harness.fake.faults.turn_on(Fault.STORM_500, only=frozenset({"list"}))
    job = site.job()
    site.cycles(2)
    yield job
    site.harness.fake.faults.turn_off(Fault.STORM_500)
    site.cycles(1)


def nobody_has_ever_led(site: Site) -> Generator[JobId]:
    yield site.job()
    site.lead()


def leader_gone(site: Site) -> Generator[JobId]:
    site.lead()
    site.clock.advance(10 * MINUTE)
    yield site.job()
    site.lead()


def leader_idle(site: Site) -> Generator[JobId]:
    site.cycles(1)
    replica = site.harness.replica()
    for _ in range(100):  # it goes on to lead, and does nothing
        site.clock.advance(timedelta(seconds=5))
        site.harness.hands_of_time.advance(timedelta(seconds=5))
        replica.leadership.campaign()
    yield site.job()
    site.cycles(1)


def worker_starting(site: Site) -> Generator[JobId]:
    site.harness.with_policy(min_workers=1)
    site.cycles(3)
    site.all_busy()
    site.harness.with_policy(min_workers=2)
    site.cycles(1, later=timedelta(seconds=1))
    yield site.job()
    site.cycles(2)


def worker_without_the_gpu_that_its_pool_requires(site: Site) -> Generator[JobId]:
    site.harness.with_policy(promotion=Promotion.READY, require_gpu=True)
    register_worker(site.services, WorkerId("bare"))
    beat(site.services, WorkerId("bare"), report=GpuReport(ready=True, seen=False))
    site.cycles(1, later=timedelta(seconds=1))
    yield site.job()
    site.harness.with_policy(require_gpu=False)
    site.cycles(1, later=timedelta(seconds=1))


def nobody_keeps_the_pool(site: Site) -> Generator[JobId]:
    yield site.job(pool="other")
    site.worker(pool="other")


def pool_served_by_hand(site: Site) -> Generator[JobId]:
    a_pool(site.services, served_by=ServedBy.HAND)
    yield site.job(pool=LLM)
    site.worker(pool=LLM)


def all_busy_and_too_few_jobs_for_another(site: Site) -> Generator[JobId]:
    site.harness.with_policy(min_workers=1)
    site.cycles(3)
    site.all_busy()
    site.clock.advance(2 * MINUTE)
    site.lead()
    yield site.job()
    complete_job(site.services, site.held().key)


BUSY2 = r"all 2 workers of pool default are busy, and none is added \(blocked by MAX_ACTIVE_GPUS=2"
NONE = r"pool default has no active worker, and none is added \(blocked by"
SITUATIONS: dict[Situation, Expected] = {
    at_the_ceiling: (
        Code.CEILING,
        rf"{BUSY2}: .*\).*; the job starts when one of them is free, or raise MAX_ACTIVE_GPUS",
    ),
    killed_by_switch: (
        Code.KILL_SWITCH,
        rf"{NONE} KILL_SWITCH: MAX_ACTIVE_GPUS is 0\), since {UTC}; raise MAX_ACTIVE_GPUS",
    ),
    breaker_open: (
        Code.BREAKER_OPEN,
        rf"{NONE} MAX_WORKER_FAILURE_RATE=0.8: too many .*\), since {UTC}; when no more",
    ),
    budget_spent: (
        Code.BUDGET_SPENT,
        r"blocked by the budget=0.0001: the budget of this day is spent.*or raise BUDGET",
    ),
    no_capacity: (
        Code.PROVIDER_WAITS,
        rf"{NONE} PROVIDER_WAITS: .*\), since {UTC}; the provider is asked again at {UTC}",
    ),
    provider_rejects: (
        Code.PROVIDER_REJECTED,
        rf"{NONE} PROVIDER_REJECTED: .*; fix that at the provider, then: herdsman resume --pool default",
    ),
    provider_out_of_sight: (
        Code.PARTIAL_SIGHT,
        rf"{NONE} PARTIAL_SIGHT: the provider could not be listed: ",
    ),
    nobody_has_ever_led: (
        WaitCode.NO_LEADER,
        r"no control plane has ever run here to add one; start a control plane",
    ),
    leader_gone: (
        WaitCode.NO_LEADER,
        rf"no control plane leads to add one, since {UTC}; start a control plane: herdsman up",
    ),
    leader_idle: (
        WaitCode.NO_CYCLE,
        rf"the leader one finishes no cycle to add one, since {UTC}; look at the log",
    ),
    worker_starting: (
        WaitCode.STARTING,
        rf"default is busy, and a worker is starting, since {UTC}; the job starts when one is ready; half of the last 1",
    ),
    worker_without_the_gpu_that_its_pool_requires: (
        WaitCode.NO_GPU,
        rf"and worker bare cannot become active: .* a GPU \(REQUIRE_GPU\), and this worker has none, since {UTC}; start",
    ),
    nobody_keeps_the_pool: (
        WaitCode.NOBODY_KEEPS,
        r"pool other has no active worker, and the control loop does not manage this pool",
    ),
    pool_served_by_hand: (Code.SERVED_BY_HAND, r"SERVED_BY_HAND: .*; start one: herdsman worker --pool llm"),
    all_busy_and_too_few_jobs_for_another: (
        WaitCode.BUSY,
        r"the only worker of pool default is busy; the job starts when .* one more is added at 4 queued jobs; now 1",
    ),
}


@each_of(SITUATIONS)
class TestNoWorker(SituationContract):
    timed = frozenset({at_the_ceiling, budget_spent, worker_starting, all_busy_and_too_few_jobs_for_another})


def test_the_next_worker_of_the_pool_is_part_of_the_answer(site: Site) -> None:
    site.harness.with_policy(min_workers=2, max_workers=2)
    site.cycles(3)
    site.all_busy()
    site.lead()
    answer = site.why(site.job())
    assert answer.next_worker is not None
    assert answer.next_worker.blocked_by is not None
    assert answer.next_worker.blocked_by.startswith("blocked by MAX_ACTIVE_GPUS=2")


def test_a_pool_can_be_asked_without_a_way_to_the_provider(site: Site) -> None:
    site.harness.with_policy(min_workers=2, max_workers=5)
    site.cycles(3)
    site.clock.advance(5 * MINUTE)
    glance = why_pool(site.services, DEFAULT_POOL, site.harness.replica().observer.observe_readonly())
    site.harness.fake.faults.turn_on(Fault.STORM_500)
    assert why_pool(site.services, DEFAULT_POOL).because == glance.because
    assert glance.because == ("The next worker is added at 7 queued; 0 queued",)


def test_a_worker_of_a_pool_that_nobody_declared_serves_it(site: Site) -> None:
    """`why` advises to start one: it becomes active and takes the job, with or without a GPU."""
    site.harness.with_policy(promotion=Promotion.READY, require_gpu=True)
    job = site.job(pool="strange")
    worker = WorkerId("by-hand")
    register_worker(site.services, worker, pool=PoolId("strange"))
    beat(site.services, worker, report=GpuReport(ready=True, seen=False))
    site.cycles(1, later=timedelta(seconds=1))
    assert site.active() == [worker]
    assert (
        "it was never created; it has 1 worker that was started manually"
        in why_pool(site.services, PoolId("strange")).because[0]
    )
    assert site.given_out() == {job}
    assert find_job(site.services, job).status is JobStatus.CLAIMED
    site.cycles(3, later=timedelta(seconds=1))
    assert site.active() == [worker]


@every_database
def test_a_starting_worker_is_told_what_it_waits_for(site: Site) -> None:
    worker = WorkerId("new")
    site.harness.with_policy(promotion=Promotion.READY, require_gpu=True)
    register_worker(site.services, worker)
    without, with_gpu = (GpuReport(ready=True, seen=seen) for seen in (False, True))
    wanted = "pool default requires a GPU (REQUIRE_GPU), and this worker has none"
    assert record_heartbeat(site.services, worker, WorkerHeartbeat(report=without)).not_active == wanted
    assert why_worker(site.services, worker).because[0] == f"Worker new gets no jobs yet: {wanted}"
    leaderless = record_heartbeat(site.services, worker, WorkerHeartbeat(report=with_gpu)).not_active
    assert leaderless is not None
    assert leaderless.startswith("no control plane leads")
    site.lead()
    soon = record_heartbeat(site.services, worker, WorkerHeartbeat(report=with_gpu)).not_active
    assert soon == "the next control cycle makes it active"
    site.cycles(1, later=timedelta(seconds=1))
    assert record_heartbeat(site.services, worker, WorkerHeartbeat(report=with_gpu)).not_active is None


def test_a_worker_beside_the_database_hears_what_the_leader_requires(site: Site) -> None:
    """Its own settings need not be those of the control plane."""
    site.harness.with_policy(promotion=Promotion.READY, require_gpu=True)
    worker, without = WorkerId("new"), WorkerHeartbeat(report=GpuReport(ready=True, seen=False))
    register_worker(site.services, worker)
    record_heartbeat(site.harness.services, worker, without)
    site.cycles(1, later=timedelta(seconds=1))
    told = record_heartbeat(site.harness.services, worker, without).not_active
    assert told == "pool default requires a GPU (REQUIRE_GPU), and this worker has none"


def test_a_pool_that_is_served_by_hand_requires_no_gpu(site: Site) -> None:
    site.harness.with_policy(promotion=Promotion.READY, require_gpu=True)
    a_pool(site.services, served_by=ServedBy.HAND)
    worker = WorkerId("bare")
    register_worker(site.services, worker, pool=LLM)
    site.lead()
    told = record_heartbeat(site.services, worker, WorkerHeartbeat(report=GpuReport(ready=True, seen=False)))
    assert told.not_active == "the next control cycle makes it active"
    site.cycles(1, later=timedelta(seconds=1))
    assert site.active() == [worker]
