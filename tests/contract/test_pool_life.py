"""Pools that are asked for by name, from their start to their end."""

from datetime import timedelta

import pytest

from herdsman.errors import StaleWrite
from herdsman.fleet.actions import MovePool
from herdsman.fleet.decide import decide
from herdsman.ids import WorkerId
from herdsman.jobs.commands import find_job, submit_job
from herdsman.jobs.model import NewJob
from herdsman.jobs.worker_commands import complete_job
from herdsman.pools.commands import beat_pool, drain_pool, evict_pool, find_pool
from herdsman.pools.rules import Serves
from herdsman.states import JobStatus, PoolStatus, WorkerStatus
from tests.support.builders import a_job, claimed, scalar
from tests.support.control_loop import FleetHarness
from tests.support.databases import every_database, one_database
from tests.support.pools import LLM, a_pool, alive, cycles, history, rented, state
from tests.support.worker_calls import claim_job

pytestmark = one_database


@every_database
def test_a_pool_is_started_served_and_kept(pool_loop: FleetHarness) -> None:
    assert a_pool(pool_loop.services).pool.status is PoolStatus.STARTING
    cycles(pool_loop)
    seen = find_pool(pool_loop.services, LLM)
    assert (seen.pool.status, seen.workers) == (PoolStatus.RUNNING, {WorkerStatus.ACTIVE: 2})
    assert scalar(pool_loop.services.database, "SELECT spawned_workers FROM worker_pools") == 2
    assert history(pool_loop.services) == [("starting", "created"), ("running", "served")]


def test_a_pool_survives_a_new_control_plane_and_none_of_it_is_doubled(pool_loop: FleetHarness) -> None:
    """What the rows say is enforced again by whoever leads."""
    a_pool(pool_loop.services)
    cycles(pool_loop)
    before = alive(pool_loop.services)
    cycles(pool_loop, 4)
    assert alive(pool_loop.services) == before
    assert pool_loop.fake.ledger.most_alive == 2
    pool_loop.fake.vanish(pool_loop.fake.ledger.alive[0].id)
    pool_loop.with_policy(heartbeat_timeout=timedelta(seconds=5))
    cycles(pool_loop, 8)
    assert rented(pool_loop) == 2


def test_a_drain_gives_out_no_job_and_loses_none(pool_loop: FleetHarness) -> None:
    """From the moment of the answer on; the job at hand is finished, and the pool has stopped."""
    services = pool_loop.services
    a_pool(services)
    cycles(pool_loop)
    first, second = (WorkerId(each) for each in alive(services))
    held, waiting = a_job(services, pool=LLM), a_job(services, pool=LLM)
    claim = claimed(services, first)
    assert drain_pool(services, LLM).pool.status is PoolStatus.DRAINING
    assert claim_job(services, second) is None
    assert claim_job(services, first) is None
    cycles(pool_loop, 2)
    assert state(services) is PoolStatus.DRAINING
    complete_job(services, claim.key, {"ok": True})
    cycles(pool_loop, 6)
    assert state(services) is PoolStatus.STOPPED
    assert rented(pool_loop) == 0
    assert find_job(services, held).status is JobStatus.DONE
    assert find_job(services, waiting).status is JobStatus.PENDING, "nothing that was accepted is lost (J1)"
    assert history(services)[2:] == [("draining", "drained"), ("stopped", "empty")]


def test_a_job_that_outlasts_the_grace_of_a_drain_goes_back(pool_loop: FleetHarness) -> None:
    services = pool_loop.services
    pool_loop.with_policy(shutdown_grace=timedelta(seconds=40), stuck_timeout=timedelta(hours=1))
    a_pool(services, desired_workers=1)
    cycles(pool_loop)
    job_id = a_job(services, pool=LLM)
    claimed(services, WorkerId(alive(services)[0]))
    drain_pool(services, LLM)
    cycles(pool_loop, 1)
    assert find_job(services, job_id).status is JobStatus.CLAIMED
    cycles(pool_loop, 8)
    assert find_job(services, job_id).status is JobStatus.PENDING
    assert state(services) is PoolStatus.STOPPED


@every_database
def test_workers_that_start_while_their_pool_drains_are_called_off_and_blamed_for_nothing(
    pool_loop: FleetHarness,
) -> None:
    services = pool_loop.services
    a_pool(services)
    cycles(pool_loop, 1)
    drain_pool(services, LLM)
    cycles(pool_loop, 6)
    assert (state(services), rented(pool_loop)) == (PoolStatus.STOPPED, 0)
    assert scalar(services.database, "SELECT COUNT(*) FROM workers WHERE failed_at IS NOT NULL") == 0


def test_an_evicted_pool_ends_at_once_and_its_jobs_go_back_unharmed(pool_loop: FleetHarness) -> None:
    services = pool_loop.services
    a_pool(services)
    cycles(pool_loop)
    job_id = a_job(services, pool=LLM)
    claim = claimed(services, WorkerId(alive(services)[0]))
    assert evict_pool(services, LLM).pool.status is PoolStatus.EVICTED
    job = find_job(services, job_id)
    assert (job.status, job.interruptions, job.worker_losses) == (JobStatus.PENDING, 1, 0)
    assert claim.key.token == job.claim_token
    cycles(pool_loop, 4)
    assert (state(services), rented(pool_loop)) == (PoolStatus.EVICTED, 0)
    assert evict_pool(services, LLM).pool.status is PoolStatus.EVICTED


@every_database
def test_a_pool_that_has_ended_starts_again_under_its_name(pool_loop: FleetHarness) -> None:
    services = pool_loop.services
    a_pool(services)
    cycles(pool_loop)
    evict_pool(services, LLM)
    cycles(pool_loop, 5)
    again = a_pool(services, serves=Serves(model="org/other"))
    assert (again.pool.status, again.pool.revision) == (PoolStatus.STARTING, 2)
    cycles(pool_loop, 4)
    assert state(services) is PoolStatus.RUNNING
    assert rented(pool_loop) == 2


def test_a_drain_that_is_regretted_is_taken_back(pool_loop: FleetHarness) -> None:
    a_pool(pool_loop.services)
    cycles(pool_loop)
    drain_pool(pool_loop.services, LLM)
    assert a_pool(pool_loop.services).pool.status is PoolStatus.RUNNING
    cycles(pool_loop, 6)
    assert rented(pool_loop) == 2


def test_a_pool_that_nobody_uses_is_let_go_when_its_hold_is_over(pool_loop: FleetHarness) -> None:
    services = pool_loop.services
    a_pool(services, hold=timedelta(seconds=200))
    cycles(pool_loop, 6)
    assert state(services) is PoolStatus.RUNNING
    beat_pool(services, LLM)
    cycles(pool_loop, 5)
    assert state(services) is PoolStatus.RUNNING, "somebody said that it is wanted"
    cycles(pool_loop, 8)
    assert state(services) is PoolStatus.STOPPED
    assert rented(pool_loop) == 0
    assert ("draining", "hold_over") in history(services)


@pytest.mark.parametrize("kept_by", ["held", "queued", "later"])
def test_jobs_keep_their_pool(pool_loop: FleetHarness, kept_by: str) -> None:
    services = pool_loop.services
    pool_loop.with_policy(stuck_timeout=timedelta(hours=9), not_claiming_timeout=timedelta(hours=9))
    a_pool(services, hold=timedelta(seconds=60), desired_workers=1)
    cycles(pool_loop, 2)
    submit_job(
        services,
        NewJob(type="demo", pool=LLM, delay=timedelta(hours=1) if kept_by == "later" else None),
    )
    if kept_by == "held":
        claimed(services, WorkerId(alive(services)[0]))
    cycles(pool_loop, 8)
    assert state(services) is PoolStatus.RUNNING


def test_the_end_of_a_job_is_remembered_as_its_use(pool_loop: FleetHarness) -> None:
    services = pool_loop.services
    a_pool(services, hold=timedelta(seconds=120), desired_workers=1)
    cycles(pool_loop, 3)
    a_job(services, pool=LLM)
    complete_job(services, claimed(services, WorkerId(alive(services)[0])).key)
    cycles(pool_loop, 3)
    assert state(services) is PoolStatus.RUNNING
    cycles(pool_loop, 8)
    assert state(services) is PoolStatus.STOPPED


@every_database
def test_a_job_that_comes_in_the_last_moment_keeps_its_pool(pool_loop: FleetHarness) -> None:
    """The loop has seen nobody; the transaction that lets the pool go looks once more."""
    services = pool_loop.services
    a_pool(services, hold=timedelta(seconds=70))
    cycles(pool_loop, 3)
    replica = pool_loop.replica()
    term = replica.leadership.campaign()
    assert term is not None
    seen = replica.observer.observe(term.epoch)
    (step,) = [each for each in decide(seen).actions if isinstance(each, MovePool)]
    a_job(services, pool=LLM)
    with pytest.raises(StaleWrite):
        replica.executor.act(step, seen, term.epoch)
    assert state(services) is PoolStatus.RUNNING
    assert claim_job(services, WorkerId(alive(services)[0])) is not None
