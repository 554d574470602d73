"""The rights that the page on databases gives suffice, and they are not more than it says."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine

from herdsman.context import Services
from herdsman.db.checks import require_current
from herdsman.db.upgrade import upgrade
from herdsman.errors import StoreMisconfigured
from herdsman.fleet import commands as fleet_commands
from herdsman.ids import WorkerId
from herdsman.jobs import commands as jobs_commands
from herdsman.jobs import sweep, worker_commands
from herdsman.jobs.model import JobPolicy, NewJob
from herdsman.server.wiring import new_job_id
from herdsman.states import JobStatus, Reason, WorkerStatus
from tests.docs.pages import pages
from tests.support.databases import opened
from tests.support.servers.mariadb import MariadbServer
from tests.support.servers.postgres import PostgresServer
from tests.support.worker_calls import beat, claim_job

PASSWORDS = {"herdsman_owner": "change-me", "herdsman_app": "change-me-too"}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        execute(server.url("postgres"), "postgresql, administrator")
        yield server


@pytest.fixture(scope="module")
def mariadb_with_a_log() -> Iterator[MariadbServer]:
    with MariadbServer(options=["--log-bin=log", "--server-id=1"]) as server:
        execute(server.url(""), "mariadb, administrator")
        yield server


def test_on_postgresql_the_rights_suffice(postgres: PostgresServer) -> None:
    place = f"127.0.0.1:{postgres.port}/herdsman"
    owner = url("postgresql+psycopg", "herdsman_owner", place)
    make_tables(owner)
    execute(owner, "postgresql, owner")
    live_through_a_job(url("postgresql+psycopg", "herdsman_app", place))


def test_on_mariadb_the_rights_suffice_once_triggers_may_be_made(mariadb_with_a_log: MariadbServer) -> None:
    place = f"127.0.0.1:{mariadb_with_a_log.port}/herdsman"
    owner = url("mysql+pymysql", "herdsman_owner", place)
    with pytest.raises(StoreMisconfigured, match="log_bin_trust_function_creators"):
        make_tables(owner)
    execute(mariadb_with_a_log.url(""), "mariadb, binary log")
    make_tables(owner)
    live_through_a_job(url("mysql+pymysql", "herdsman_app", place))


def make_tables(owner: str) -> None:
    with opened(owner) as database:
        upgrade(database)


def live_through_a_job(app: str) -> None:
    """All that the control plane does, by the user who may change no table."""
    with opened(app) as database:
        require_current(database)
        policy = JobPolicy(job_retention=timedelta(microseconds=1), audit_retention=timedelta(microseconds=1))
        services = Services(database, policy, new_job_id)
        worker = WorkerId("w1")
        fleet_commands.register_worker(services, worker)
        fleet_commands.move_worker(services, worker, WorkerStatus.ACTIVE, Reason.READY)
        job_id = jobs_commands.submit_job(services, NewJob(type="demo", tags=("tour",))).job_id
        claim = claim_job(services, worker)
        assert claim is not None
        worker_commands.start_job(services, claim.key)
        beat(services, worker, claim.key)
        worker_commands.report_progress(services, claim.key, 0.5)
        worker_commands.complete_job(services, claim.key, {"ok": True})
        jobs_commands.requeue_job(services, job_id)
        assert jobs_commands.cancel_job(services, job_id) is JobStatus.CANCELLED
        execute(app, "any database")
        execute(app, "the latest errors of all replicas")
        assert (sweep.stage_due_jobs(services), sweep.expire_claims(services)) == (0, 0)
        assert sweep.prune(services) > 0
    with pytest.raises(Exception, match="denied"):
        execute_statement(app, "CREATE TABLE more (n INTEGER)")


def url(driver: str, user: str, place: str) -> str:
    return f"{driver}://{user}:{PASSWORDS[user]}@{place}"


def execute(where: str, block: str) -> None:
    """Run the block that begins with this comment, from whichever page has it."""
    mark = f"-- {block}\n"
    (text,) = (each.text for one in pages() for each in one.blocks() if each.text.startswith(mark))
    for statement in text.removeprefix(mark).split(";"):
        if statement.strip():
            execute_statement(where, statement)


def execute_statement(where: str, statement: str) -> None:
    engine = create_engine(where, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)


def test_every_sql_block_is_tried() -> None:
    blocks = [block.text for each in pages() for block in each.blocks() if block.language == "sql"]
    source = Path(__file__).read_text()
    for text in blocks:
        first = text.partition("\n")[0]
        assert f'"{first.removeprefix("-- ")}"' in source, f"{first} is tried by no test"
