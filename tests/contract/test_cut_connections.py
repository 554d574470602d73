"""A connection that is cut is replaced, and what it was doing is done again; only a cut COMMIT leaves a question."""

import pytest
from sqlalchemy import NullPool, create_engine, text

from herdsman.context import Services
from herdsman.db.connection import Database, Tx
from herdsman.errors import OutcomeUnknown
from herdsman.ids import JobId
from herdsman.jobs.commands import find_job, list_jobs, submit_job
from herdsman.jobs.model import JobPolicy, NewJob
from herdsman.jobs.worker_commands import complete_job
from herdsman.states import WORKER
from herdsman.wire import new_job_id
from tests.support.builders import a_claim, a_job, scalar
from tests.support.databases import ServerDatabases, opened
from tests.support.rows import add_row

NOTE = "UPDATE workers SET instance_type = :note WHERE id = :id"


def test_a_connection_that_was_cut_is_replaced_unnoticed(server: ServerDatabases) -> None:
    with opened(server.fresh()) as database:
        services = Services(database, JobPolicy(), new_job_id)
        claim = a_claim(services)
        cut_all_connections(server, database)
        complete_job(services, claim.key, "kept")
        assert find_job(services, claim.key.job_id).result == "kept"
        cut_all_connections(server, database)
        assert len(list_jobs(services).jobs) == 1


def test_work_whose_connection_is_cut_is_done_again_as_a_whole(server: ServerDatabases) -> None:
    with opened(server.fresh()) as database:
        add_row(database, WORKER, "a")
        calls: list[int] = []

        def work(tx: Tx) -> None:
            calls.append(1)
            tx.execute(text(NOTE), {"note": f"call {len(calls)}", "id": "a"})
            if len(calls) == 1:
                cut_all_connections(server, database)
            tx.execute(text("UPDATE workers SET last_heartbeat = updated_at"))

        database.transact(work)
        assert (len(calls), scalar(database, "SELECT instance_type FROM workers")) == (2, "call 2")


def test_a_connection_cut_during_commit_leaves_the_outcome_open(server: ServerDatabases) -> None:
    """The command may be repeated: whether or not it was stored, it is stored once."""
    with opened(server.fresh()) as database:
        services = Services(database, JobPolicy(), new_job_id)
        with pytest.raises(OutcomeUnknown, match="the connection broke during COMMIT"):
            database.transact(lambda tx: (a_write(tx), cut_all_connections(server, database)))
        new = NewJob(type="demo", job_id=JobId("j"))
        submit_job(services, new)
        assert submit_job(services, new).created is False
        assert a_job(services) != "j"


def a_write(tx: Tx) -> None:
    tx.execute(text("INSERT INTO orchestrator_retention VALUES ('x', :now)"), {"now": tx.now().replace(tzinfo=None)})


def cut_all_connections(server: ServerDatabases, database: Database) -> None:
    with create_engine(server.server.url("shared"), poolclass=NullPool).connect() as connection:
        if database.backend == "PostgreSQL":
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'shared' AND pid <> pg_backend_pid()"
            connection.execute(text(others))
            return
        mine = connection.execute(text("SELECT CONNECTION_ID()")).scalar_one()
        for row in connection.execute(text("SHOW PROCESSLIST")).all():
            if row.db == "shared" and row.Id != mine:
                connection.execute(text(f"KILL {row.Id}"))
