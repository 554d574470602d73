"""Behind a real PgBouncer in transaction mode; and prepared statements, where the session is our own."""

from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs.assign import claim_for
from herdsman.jobs.commands import find_job, submit_jobs
from herdsman.jobs.model import JobPolicy, NewJob
from herdsman.jobs.protocol import ClaimRequest
from herdsman.jobs.worker_commands import complete_job
from herdsman.states import JobStatus
from herdsman.wire import new_job_id
from tests.support.builders import a_worker
from tests.support.databases import ServerDatabases, opened
from tests.support.servers.pgbouncer import PgBouncerServer
from tests.support.servers.postgres import PostgresServer

ROUNDS = 10
REMEMBERED = "SELECT count(*) FROM pg_prepared_statements"


@pytest.fixture
def pooler(postgresql: ServerDatabases) -> Iterator[PgBouncerServer]:
    assert isinstance(postgresql.server, PostgresServer)
    with PgBouncerServer(postgresql.server) as running:
        yield running


def test_jobs_live_behind_a_pooler_and_nothing_is_prepared(
    postgresql: ServerDatabases, pooler: PgBouncerServer
) -> None:
    """Two clients that take turns in the same sessions: a name that one has prepared is not the other's statement."""
    name = make_url(postgresql.fresh()).database
    assert name is not None
    with opened(pooler.url(name)) as one, opened(f"{pooler.url(name)}?application_name=other") as other:
        first, second = live(one, "w1"), live(other, "w2")
        for _ in range(ROUNDS):
            next(first)
            next(second)
        assert [remembered(database) for database in (one, other, one, other)] == [0, 0, 0, 0]


def test_statements_are_prepared_where_the_session_is_our_own(postgresql: ServerDatabases) -> None:
    with opened(postgresql.fresh(), pool_size=1) as database:
        lived = live(database, "w1")
        for _ in range(ROUNDS):
            next(lived)
        assert remembered(database) > 5


def test_a_plan_that_was_made_for_an_empty_queue_does_not_read_all_of_a_full_one(
    postgresql: ServerDatabases,
) -> None:
    """Nor does a check of a reference, whose plan a session keeps as well."""
    with opened(postgresql.fresh(), pool_size=1) as database:
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")  # as the server does it by itself, sooner or later
        lived = live(database, "w1")
        for _ in range(ROUNDS):
            next(lived)
        services = Services(database, JobPolicy(), new_job_id)
        submit_jobs(services, [NewJob(type="demo", pool=PoolId("w1")) for _ in range(1000)])
        before = read_in_sequence(database)
        for _ in range(ROUNDS):
            (claim,) = claim_for(services, {WorkerId("w1"): ClaimRequest(types=("demo",), begin=True)})
            complete_job(services, claim.key, None)
        assert read_in_sequence(database) - before < 1000


def read_in_sequence(database: Database) -> int:
    """Rows of the queue that were read without an index."""
    database.read(lambda tx: tx.scalar("SELECT pg_stat_force_next_flush()"))
    asked = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'job_states'"
    return database.read(lambda tx: tx.scalar(asked))


def live(database: Database, worker: str) -> Iterator[None]:
    """One job after the other, from its submission to its end."""
    services = Services(database, JobPolicy(), new_job_id)
    worker_id = a_worker(services, worker, pool=worker)
    while True:
        (made,) = submit_jobs(services, [NewJob(type="demo", pool=PoolId(worker))])
        (claim,) = claim_for(services, {worker_id: ClaimRequest(types=("demo",), begin=True)})
        assert claim.key.job_id == made.job_id
        complete_job(services, claim.key, worker)
        assert find_job(services, made.job_id).status is JobStatus.DONE
        yield


def remembered(database: Database) -> int:
    return database.read(lambda tx: tx.scalar(REMEMBERED))
