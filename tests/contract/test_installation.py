"""P11: a database ends only what it started itself, and one that may be a copy or out of date ends nothing."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import text

from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.db.schema import metadata
from herdsman.db.upgrade import upgrade
from herdsman.errors import Conflict
from herdsman.fleet import installation_sql
from herdsman.fleet.model import LEAP
from herdsman.fleet.reconcile import adopt, compare, spawn_worker
from herdsman.ids import DEFAULT_POOL
from herdsman.jobs.model import ClaimKey, JobPolicy
from herdsman.jobs.protocol import WorkerHeartbeat
from herdsman.jobs.worker_commands import record_heartbeat
from herdsman.testing.fakes.runpod import Fault
from herdsman.wire import new_job_id
from tests.support.builders import a_job, a_worker, claimed, scalar, sql
from tests.support.control_loop import FleetHarness, a_harness
from tests.support.databases import Backend, MovingClock, opened

HOUR_OF_CYCLES = 30
EVERY = timedelta(minutes=2)


@pytest.fixture
def harness(services: Services, clock: MovingClock) -> Iterator[FleetHarness]:
    with a_harness(services, clock) as harness:
        harness.with_policy(heartbeat_timeout=timedelta(minutes=5))
        yield harness


@pytest.fixture
def other(backend: Backend, clock: MovingClock) -> Iterator[Database]:
    """A database without tables."""
    url = backend.empty()
    with opened(url, clock) as database:
        yield database
    backend.drop(url)


def beside(harness: FleetHarness, database: Database) -> FleetHarness:
    """Another control plane on the same account of Runpod, with the same DEPLOYMENT_ID."""
    services = Services(database, JobPolicy(), new_job_id)
    return FleetHarness(services, harness.fake, harness.moving, harness.hands_of_time, harness.policy)


def alive(harness: FleetHarness) -> set[str]:
    return {pod.id for pod in harness.fake.ledger.alive}


def copy(source: Database, target: Database) -> None:
    """Row by row, as a dump that is restored elsewhere would."""
    metadata.create_all(target.engine)
    with source.engine.connect() as read, target.engine.begin() as write:
        version = read.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        write.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        write.execute(text(f"INSERT INTO alembic_version VALUES ('{version}')"))
        for table in metadata.sorted_tables:
            rows = [dict(row) for row in read.execute(table.select()).mappings()]
            if rows:
                write.execute(table.insert(), rows)
            if table.autoincrement_column is not None and write.dialect.name == "postgresql":
                key = f"'{table.name}', '{table.autoincrement_column.name}'"
                write.execute(text(f"SELECT setval(pg_get_serial_sequence({key}), {len(rows) + 1000})"))
    upgrade(target)


def test_a_fresh_database_with_a_known_deployment_id_ends_no_pod_of_the_other(
    harness: FleetHarness, other: Database
) -> None:
    harness.cycle(harness.replica())
    theirs = alive(harness)
    upgrade(other)
    stranger = beside(harness, other)
    replica = stranger.replica("stranger")
    for _ in range(HOUR_OF_CYCLES):
        stranger.cycle(replica, later=EVERY)
    assert len(theirs) == 2
    assert theirs <= alive(harness)


def test_a_copied_database_beside_a_live_fleet_ends_and_starts_nothing(harness: FleetHarness, other: Database) -> None:
    harness.cycle(harness.replica())
    copy(harness.services.database, other)
    before = alive(harness)
    stranger = beside(harness, other)
    a_job(stranger.services)
    replica = stranger.replica("stranger")
    ran = stranger.cycle(replica, later=EVERY)
    for _ in range(HOUR_OF_CYCLES):
        ran = stranger.cycle(replica, later=EVERY)
    assert len(before) == 2
    assert alive(harness) == before
    (step,) = ran.steps()
    assert step["code"] == "DATABASE_NOT_ADOPTED"
    assert "may be a copy" in str(step["reason"])
    with pytest.raises(Conflict, match="herdsman db adopt"):
        spawn_worker(replica, DEFAULT_POOL)
    adopt(replica)
    assert stranger.cycle(replica).steps()[0]["code"] != "DATABASE_NOT_ADOPTED", "a person has said that it goes on"


def test_a_database_that_went_back_in_time_says_so_and_gives_out_no_number_again(
    harness: FleetHarness,
) -> None:
    database = harness.services.database
    waiting = a_job(harness.services)
    harness.cycle(harness.replica())
    before = alive(harness)
    restore_before_any_worker(database)
    replica = harness.replica()
    ran = harness.cycle(replica, later=EVERY)
    for _ in range(HOUR_OF_CYCLES):
        ran = harness.cycle(replica, later=EVERY)
    assert alive(harness) == before, "what it does not remember may be in use"
    (step,) = ran.steps()
    assert "it remembers 0" in str(step["reason"])
    assert scalar(database, "SELECT spawned FROM orchestrator_installation") > len(before)
    assert scalar(database, "SELECT epoch FROM orchestrator_leader") > LEAP
    assert scalar(database, f"SELECT claim_token FROM orchestrator_jobs WHERE job_id = '{waiting}'") >= LEAP
    again = a_job(harness.services)
    assert scalar(database, f"SELECT claim_token FROM orchestrator_jobs WHERE job_id = '{again}'") >= LEAP, (
        "it may have been here before, and forgotten"
    )
    assert "went back in time" in compare(replica).doubts
    adopt(replica)
    for _ in range(5):
        harness.cycle(replica)
    assert not before & alive(harness), "a person has said that nobody else uses them"
    assert len(alive(harness)) == 2


def restore_before_any_worker(database: Database) -> None:
    for table in ("workers", "orchestrator_instances"):
        sql(database, f"DELETE FROM {table}")
    sql(database, "UPDATE orchestrator_installation SET spawned = 0")


def test_a_worker_that_knows_a_later_claim_is_noted_and_its_token_is_not_given_out_again(
    services: Services, harness: FleetHarness
) -> None:
    harness.cycle(harness.replica())
    worker, job = a_worker(services, "by-hand"), a_job(services)
    reply = record_heartbeat(services, worker, WorkerHeartbeat(keys=(ClaimKey(job, 4),)))
    assert reply.lost
    known = services.database.read(installation_sql.find)
    assert known is not None
    assert "holds claim 4" in known.hint
    codes = [step["code"] for step in harness.cycle(harness.replica()).steps()]
    assert "DATABASE_NOT_ADOPTED" not in codes, "the word of a worker stops nothing"
    assert claimed(services, worker).key.token == 5


def test_a_made_up_claim_cannot_use_up_the_tokens_of_a_job(services: Services, harness: FleetHarness) -> None:
    harness.cycle(harness.replica())
    worker, job = a_worker(services, "by-hand"), a_job(services)
    record_heartbeat(services, worker, WorkerHeartbeat(keys=(ClaimKey(job, 10**12),)))
    assert scalar(services.database, f"SELECT claim_token FROM orchestrator_jobs WHERE job_id = '{job}'") == 0


def test_an_orphan_is_ended_only_after_it_was_seen_for_a_while(harness: FleetHarness) -> None:
    replica = harness.replica()
    harness.cycle(replica)
    harness.fake.faults.turn_on(Fault.CREATED_TWICE, times=1)
    harness.with_policy(min_workers=3)
    replica = harness.replica()
    harness.cycle(replica)
    seen = [len(alive(harness))]
    for _ in range(4):
        harness.cycle(replica, later=timedelta(seconds=25))
        seen.append(len(alive(harness)))
    assert seen == [4, 4, 4, 4, 3]
