"""What is older than its retention goes, together with everything that was recorded of it; nothing else does."""

from dataclasses import replace
from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import NotFound
from herdsman.fleet import history_sql
from herdsman.fleet.commands import move_worker, register_worker
from herdsman.ids import WorkerId
from herdsman.jobs.commands import cancel_job, find_history, find_job, requeue_job, submit_jobs
from herdsman.jobs.model import NewJob
from herdsman.jobs.sql import BATCH
from herdsman.jobs.sweep import prune
from herdsman.jobs.worker_commands import complete_job
from herdsman.states import JobStatus, Reason, WorkerStatus
from tests.support.builders import a_claim, a_job, an_ended_job, claimed, replayed, scalar
from tests.support.databases import MovingClock

pytestmark = pytest.mark.usefixtures("stopped_clock")
DAY = timedelta(days=1)
MONTH = timedelta(days=30)


def test_an_old_job_goes_with_its_attempts_tags_and_audit(services: Services, clock: MovingClock) -> None:
    job_id = an_ended_job(services, JobStatus.DONE, tags=("x",))
    clock.advance(MONTH + timedelta(microseconds=1))
    assert prune(services) == 1
    with pytest.raises(NotFound):
        find_job(services, job_id)
    assert find_history(services, job_id) == []
    assert [rows(services, table) for table in ("job_attempts", "job_tags")] == [0, 0]
    assert prune(services) == 0


def test_a_job_is_kept_until_its_retention_is_over(services: Services, clock: MovingClock) -> None:
    job_id = an_ended_job(services, JobStatus.DONE)
    clock.advance(MONTH)
    assert prune(services) == 0
    assert replayed(services, job_id) == JobStatus.DONE


def test_j1_a_job_that_has_not_ended_is_kept_for_ever(services: Services, clock: MovingClock) -> None:
    waiting, held = a_job(services, delay=365 * DAY), a_claim(services).key.job_id
    clock.advance(5000 * DAY)
    prune(services)
    assert [replayed(services, job_id) for job_id in (waiting, held)] == [
        JobStatus.SCHEDULED,
        JobStatus.CLAIMED,
    ]


def test_a_requeued_job_counts_from_its_new_end(services: Services, clock: MovingClock) -> None:
    job_id = an_ended_job(services, JobStatus.DONE)
    clock.advance(29 * DAY)
    requeue_job(services, job_id)
    complete_job(services, claimed(services, WorkerId("w1")).key)
    clock.advance(29 * DAY)
    assert prune(services) == 0
    assert replayed(services, job_id) == JobStatus.DONE


def test_without_a_retention_nothing_goes(services: Services, clock: MovingClock) -> None:
    forever = replace(services, policy=replace(services.policy, job_retention=None, audit_retention=None))
    job_id = an_ended_job(forever, JobStatus.DONE)
    clock.advance(9000 * DAY)
    assert prune(forever) == 0
    assert replayed(forever, job_id) == JobStatus.DONE


def test_the_audit_of_a_job_stays_as_long_as_the_job(services: Services, clock: MovingClock) -> None:
    """A job's audit has no gap at its beginning either."""
    longer = replace(services, policy=replace(services.policy, job_retention=None))
    job_id = an_ended_job(longer, JobStatus.DONE)
    clock.advance(100 * DAY)
    prune(longer)
    assert replayed(longer, job_id) == JobStatus.DONE


def test_the_old_audit_of_a_worker_that_is_gone_goes(services: Services, clock: MovingClock) -> None:
    register_worker(services, WorkerId("old"))
    move_worker(services, WorkerId("old"), WorkerStatus.ERROR, Reason.LOST)
    move_worker(services, WorkerId("old"), WorkerStatus.TERMINATED, Reason.STOPPED)
    clock.advance(91 * DAY)
    register_worker(services, WorkerId("new"))
    assert prune(services) == 3
    assert scalar(services.database, "SELECT object_id FROM orchestrator_audit") == "new"


def test_the_audit_of_a_worker_that_lives_has_no_gap(services: Services, clock: MovingClock) -> None:
    """A1: replay = state, however old the first row is"""
    register_worker(services, WorkerId("w1"))
    clock.advance(91 * DAY)
    move_worker(services, WorkerId("w1"), WorkerStatus.ACTIVE, Reason.READY)
    prune(services)
    assert scalar(services.database, "SELECT MIN(seq) FROM orchestrator_audit WHERE object_id = 'w1'") == 1


def test_pruning_goes_through_everything_in_small_steps(services: Services, clock: MovingClock) -> None:
    submitted = submit_jobs(services, [NewJob(type="demo", tags=("x",)) for _ in range(BATCH + 10)])
    for answer in submitted:
        cancel_job(services, answer.job_id)
    clock.advance(MONTH + DAY)
    kept = a_job(services)
    assert prune(services) == BATCH + 10
    assert rows(services, "orchestrator_jobs") == 1
    assert replayed(services, kept) == JobStatus.PENDING


def test_a_clock_that_jumped_back_does_not_stop_the_pruning(services: Services, clock: MovingClock) -> None:
    """T2: the job was submitted five minutes after it ended, as its rows say."""
    job_id = a_job(services)
    clock.advance(-timedelta(minutes=5))
    cancel_job(services, job_id)
    clock.advance(MONTH + timedelta(minutes=1))
    prune(services)
    clock.advance(timedelta(minutes=10))
    prune(services)
    assert rows(services, "orchestrator_jobs") == 0


def test_the_record_of_a_cycle_is_kept_for_a_week(services: Services, clock: MovingClock) -> None:
    def record(count: int) -> None:
        services.database.transact(lambda tx: [history_sql.record_cycle(tx, 1, tx.now(), {}, []) for _ in range(count)])

    record(BATCH + 1)
    clock.advance(7 * DAY)
    assert prune(services) == 0
    clock.advance(timedelta(microseconds=1))
    record(1)
    assert prune(services) == BATCH + 1
    assert rows(services, "orchestrator_cycles") == 1


def rows(services: Services, table: str) -> int:
    return scalar(services.database, f"SELECT COUNT(*) FROM {table}")
