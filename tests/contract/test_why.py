"""Anyone may ask why: what was decided, on which numbers, and what would change it."""

import re
from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import NotFound
from herdsman.explain.why import why_job, why_pool, why_worker
from herdsman.fleet import history_sql
from herdsman.ids import DEFAULT_POOL, JobId, PoolId, WorkerId
from herdsman.jobs.failures import cancel_jobs
from herdsman.jobs.worker_commands import complete_job, fail_job
from herdsman.testing.fakes.runpod import Fault
from tests.support.builders import BROKEN, a_job, a_worker, claimed
from tests.support.control_loop import FleetHarness
from tests.support.databases import MovingClock, every_database, one_database
from tests.support.worker_calls import claim_job

pytestmark = one_database


def first_worker(harness: FleetHarness) -> WorkerId:
    return WorkerId(harness.fake.ledger.alive[0].name.rpartition("--")[2])


def test_a_worker_tells_its_whole_story(harness: FleetHarness) -> None:
    harness.with_policy(stuck_timeout=timedelta(seconds=40))
    a_job(harness.services)
    replica = harness.replica()
    harness.cycle(replica)
    harness.cycle(replica)
    worker = first_worker(harness)
    assert claim_job(harness.services, worker) is not None
    for _ in range(3):
        harness.cycle(replica)
    answer = why_worker(harness.services, worker)
    assert answer.because[0].startswith("Stuck task")
    codes = [told.code for told in answer.decided]
    assert codes[-2:] == ["INSTANCE_RUNNING", "FLOOR"]
    stuck = next(told for told in answer.decided if told.code == "STUCK_TASK")
    assert stuck.numbers["limit_s"] == 40
    assert stuck.done
    assert [step.to_status for step in answer.history][:3] == ["spawning", "active", "error"]


def test_a_pool_says_when_it_would_grow_and_equal_decisions_are_one(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=2)
    replica = harness.replica()
    harness.fake.faults.turn_on(Fault.NO_CAPACITY)
    for _ in range(4):
        harness.cycle(replica, later=timedelta(seconds=5))
    waiting = why_pool(harness.services, DEFAULT_POOL, replica.observer.observe_readonly())
    assert waiting.because[0].startswith("blocked by PROVIDER_WAITS")
    assert (waiting.decided[0].code, waiting.decided[0].times) == ("PROVIDER_WAITS", 3)
    harness.fake.faults.turn_off(Fault.NO_CAPACITY)
    harness.moving.advance(timedelta(minutes=10))
    for _ in range(2):
        harness.cycle(replica)
    for number in range(3):
        a_job(harness.services, job_id=f"j{number}")
    settled = why_pool(harness.services, DEFAULT_POOL, replica.observer.observe_readonly())
    assert settled.because == ("The next worker is added at 7 queued; 3 queued",)
    harness.with_policy(max_workers=2)
    full = why_pool(harness.services, DEFAULT_POOL, harness.replica().observer.observe_readonly())
    assert full.because[0] == "blocked by MAX_ACTIVE_GPUS=2: as many workers as allowed are alive"


def test_a_pool_that_nobody_keeps_is_not_made_up(harness: FleetHarness) -> None:
    with pytest.raises(NotFound, match="there is no pool 'other'"):
        why_pool(harness.services, PoolId("other"), harness.replica().observer.observe_readonly())


def test_a_pool_that_only_a_job_names_can_be_asked_about(harness: FleetHarness) -> None:
    """Overview links to it."""
    a_job(harness.services, pool="other")
    found = why_pool(harness.services, PoolId("other"), harness.replica().observer.observe_readonly())
    assert found.status == "1 queued, 0 workers alive, not managed by the control loop"
    assert found.because[0] == "The control loop adds no worker to pool other: it was never created"
    assert "herdsman pool create other" in found.because[1]
    assert (found.next_worker, found.numbers["queued"]) == (None, 1)


def test_a_waiting_job_says_what_it_waits_for(services: Services, clock: MovingClock) -> None:
    first, second = a_job(services), a_job(services)
    clock.advance(timedelta(minutes=1))
    answer = why_job(services, second)
    nobody = "no control plane has ever run here to add one; start a control plane: herdsman up"
    assert answer.because == (
        f"Waiting: pool default has no active worker, and {nobody}",
        "1 job is ahead in pool default",
    )
    worker = a_worker(services)
    assert claimed(services, worker).key.job_id == first
    answer = why_job(services, second)
    assert answer.because[0].startswith("Waiting: the only worker of pool default is busy, and no control")
    assert answer.because[1] == "The job is next in pool default"
    assert answer.since is not None
    assert answer.numbers == {"ahead": 0, "active": 1, "busy": 1, "spawning": 0}
    assert why_job(services, first).because[0].startswith("Claimed by worker w1 until ")


def test_a_job_that_waits_for_its_time_says_until_when(services: Services) -> None:
    later = a_job(services, delay=timedelta(hours=1))
    assert why_job(services, later).because[0].startswith("Waiting: the job is scheduled for ")
    a_job(services, job_id="broken")
    fail_job(services, claimed(services, a_worker(services)).key, BROKEN)
    tried = why_job(services, JobId("broken"))
    assert tried.because[0].startswith("Waiting: attempt 1 of 3 failed, and the next one starts at ")
    assert tried.because[1] == f"The last attempt failed: {BROKEN.error}"
    assert tried.history[0].reason == "submitted"


def test_a_job_taken_back_from_a_lost_worker_names_the_decision(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=1, stuck_timeout=timedelta(seconds=40))
    job_id = a_job(harness.services)
    replica = harness.replica()
    harness.cycle(replica)
    harness.cycle(replica)
    assert claim_job(harness.services, first_worker(harness)) is not None
    for _ in range(3):
        harness.cycle(replica)
    assert [told.code for told in why_job(harness.services, job_id).decided] == ["WORKER_FAILED"]


def test_only_so_many_cycles_are_looked_through(services: Services) -> None:
    step: dict[str, object] = {
        "action": "Note",
        "about": "w1",
        "code": "IDLE",
        "reason": "x",
        "numbers": {},
        "done": True,
        "said": "",
    }
    worker = a_worker(services)
    services.database.transact(lambda tx: history_sql.record_cycle(tx, 1, tx.now(), {}, [step]))
    services.database.transact(lambda tx: [history_sql.record_cycle(tx, 1, tx.now(), {}, []) for _ in range(450)])
    assert [told.code for told in why_worker(services, worker).decided] == ["IDLE"]


@every_database
def test_a_recovered_job_says_what_that_saved(services: Services) -> None:
    a_job(services, job_id="j1")
    complete_job(services, claimed(services, a_worker(services)).key, 1, saved=timedelta(seconds=41.2))
    because = why_job(services, JobId("j1")).because[0]
    assert because == "Completed with a result that the service already had: 41.2 GPU seconds saved"


UTC = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


def test_a_job_that_is_done_is_told_as_a_person_would(services: Services, clock: MovingClock) -> None:
    """When, where, in how many attempts, how long it waited and ran."""
    worker = a_worker(services)
    a_job(services, job_id="j1")
    clock.advance(timedelta(seconds=40))
    claim = claimed(services, worker)
    clock.advance(timedelta(seconds=125))
    complete_job(services, claim.key, {})
    outcome, times = why_job(services, JobId("j1")).because
    assert re.fullmatch(rf"Completed on attempt 1 by worker w1 at {UTC}", outcome)
    assert re.fullmatch(r"Waited 4\d s for a worker, then ran for 2 min \d s", times)


def test_a_job_that_was_given_up_says_after_how_many_attempts_and_why(services: Services) -> None:
    worker = a_worker(services)
    a_job(services, job_id="j1", max_attempts=1)
    fail_job(services, claimed(services, worker).key, BROKEN)
    outcome, times = why_job(services, JobId("j1")).because
    given_up = (
        rf"Failed for good at {UTC} after 1 attempt, the last by worker w1 \(attempts exhausted\): {BROKEN.error}"
    )
    assert re.fullmatch(given_up, outcome)
    assert times.startswith("Waited ")


@every_database
def test_a_cancelled_job_says_by_whom_and_how_far_it_was(services: Services) -> None:
    never, running = a_job(services), a_job(services)
    cancel_jobs(services, [never], who="ann")
    (outcome,) = why_job(services, never).because
    assert re.fullmatch(rf"Cancelled by ann at {UTC}, before it started", outcome)
    claim = claimed(services, a_worker(services))
    assert claim.key.job_id == running
    cancel_jobs(services, [running], who="ann")
    fail_job(services, claim.key, BROKEN)
    assert re.fullmatch(rf"Cancelled by ann at {UTC}, while worker w1 ran it", why_job(services, running).because[0])
