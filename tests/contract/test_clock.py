"""Only the database's clock decides (T1), and a clock that jumps loses nothing (T2)."""

from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from sqlalchemy import text

from herdsman.context import Services
from herdsman.db import connection as module
from herdsman.db.connection import Database
from herdsman.jobs.commands import find_job
from herdsman.jobs.model import JobPolicy
from herdsman.jobs.sweep import expire_claims, stage_due_jobs
from herdsman.jobs.worker_commands import Finish, complete_job, fail_job, release_job
from herdsman.ports import SystemClock
from herdsman.server.wiring import new_job_id
from herdsman.states import JobStatus
from tests.support.builders import BROKEN, a_claim, a_job, claimed, replayed
from tests.support.databases import NOON, MovingClock, ServerDatabases
from tests.support.worker_calls import beat

SKEW = timedelta(minutes=5)


@pytest.mark.parametrize("skew", [SKEW, -SKEW], ids=["ahead", "behind"])
def test_t1_a_host_whose_clock_is_wrong_changes_nothing(
    server: ServerDatabases, monkeypatch: pytest.MonkeyPatch, skew: timedelta
) -> None:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # pyright: ignore[reportIncompatibleMethodOverride]
            return datetime.now(tz) + skew

    monkeypatch.setattr(module, "datetime", Wrong)
    database = Database(server.fresh(), clock=SystemClock())
    services = Services(database, JobPolicy(), new_job_id)
    claim = a_claim(services)
    assert expire_claims(services) == 0
    job = find_job(services, claim.key.job_id)
    asked = "SELECT clock_timestamp()" if database.backend == "PostgreSQL" else "SELECT UTC_TIMESTAMP(6)"
    told: datetime = database.read(lambda tx: tx.execute(text(asked)).scalar_one())
    assert abs(told.replace(tzinfo=told.tzinfo or UTC) - job.created_at) < timedelta(seconds=30)
    database.close()


def test_t1_sessions_of_any_time_zone_agree(server: ServerDatabases, clock: MovingClock) -> None:
    url = server.fresh()
    database = Database(url, clock=SystemClock(), clock_of=lambda _: clock.shown(NOON))
    services = Services(database, JobPolicy(), new_job_id)
    job_id = a_job(services, delay=timedelta(hours=1))
    with database.engine.begin() as connection:
        zone = "SET TIME ZONE 'Asia/Tokyo'" if database.backend == "PostgreSQL" else "SET time_zone = '+09:00'"
        connection.execute(text(zone))
    job = find_job(services, job_id)
    assert (job.created_at, job.run_at) == (NOON, NOON + timedelta(hours=1))
    assert stage_due_jobs(services) == 0
    database.close()


@pytest.mark.parametrize("jump", [SKEW, -SKEW], ids=["forward", "back"])
def test_t2_a_job_survives_a_jump_of_the_clock(services: Services, clock: MovingClock, jump: timedelta) -> None:
    clock.stop(at=NOON)
    waiting, held = a_job(services, delay=timedelta(minutes=2)), a_claim(services)
    clock.advance(jump)
    expire_claims(services)
    stage_due_jobs(services)
    if find_job(services, held.key.job_id).status is JobStatus.CLAIMED:
        beat(services, held.worker_id, held.key)
        release_job(services, held.key, "drained")
    clock.advance(timedelta(minutes=10))
    stage_due_jobs(services)
    done = [complete_job(services, claimed(services, held.worker_id).key) for _ in range(2)]
    assert done == [Finish.DONE, Finish.DONE]
    assert [replayed(services, job_id) for job_id in (waiting, held.key.job_id)] == [JobStatus.DONE] * 2


def test_t2_a_retry_that_was_set_before_the_jump_comes_all_the_same(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    claim = a_claim(services)
    fail_job(services, claim.key, BROKEN)
    clock.advance(-SKEW)
    assert stage_due_jobs(services) == 0
    clock.advance(2 * SKEW)
    assert stage_due_jobs(services) == 1
