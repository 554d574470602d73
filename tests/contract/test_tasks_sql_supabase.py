"""Behind the SQL for Supabase a worker may claim and finish its own, and see or touch nothing else."""

import json
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, NullPool, create_engine, make_url, text
from sqlalchemy.exc import ProgrammingError

from herdsman.context import Services
from herdsman.db.checks import require_current
from herdsman.db.schema import metadata
from herdsman.db.tasks_sql import PUBLIC, WORKER_FUNCTIONS, script, supabase_sql
from herdsman.db.upgrade import upgrade
from herdsman.db.views import VIEWS
from herdsman.jobs.commands import find_job
from herdsman.jobs.model import JobPolicy
from herdsman.server.wiring import new_job_id
from herdsman.states import JobStatus
from tests.support.builders import a_job, a_worker, replayed
from tests.support.databases import ServerDatabases, opened
from tests.support.worker_calls import beat

OWNER, GATEWAY = "project_owner", "authenticator"
ROLES = {
    OWNER: "LOGIN CREATEROLE",
    GATEWAY: "LOGIN NOINHERIT",
    "anon": "NOLOGIN",
    "authenticated": "NOLOGIN",
    "service_role": "NOLOGIN",
}
RELATIONS = [*metadata.tables, "alembic_version", *VIEWS, "tasks"]


@pytest.fixture
def url(postgresql: ServerDatabases) -> Iterator[str]:
    """A project as Supabase makes one: an owner without special powers, and public roles that get everything."""
    made = postgresql.empty()
    for role, powers in ROLES.items():
        missing = f"NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}')"
        typed(made, f"DO $$ BEGIN IF {missing} THEN CREATE ROLE {role} {powers}; END IF; END $$")
    typed(made, f"GRANT anon, authenticated, service_role TO {GATEWAY}")
    typed(made, "GRANT CREATE ON SCHEMA public TO PUBLIC")  # as every project had it before PostgreSQL 15
    owner = as_user(made, OWNER)
    for kind in ("TABLES", "SEQUENCES", "FUNCTIONS"):
        typed(
            owner,
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON {kind} TO anon, authenticated, service_role",
        )
    typed(made, f"ALTER SCHEMA public OWNER TO {OWNER}")
    yield owner
    postgresql.drop(made)


@pytest.fixture
def services(url: str) -> Iterator[Services]:
    with opened(url) as database:
        upgrade(database)
        typed(url, supabase_sql("public"))
        yield Services(database, JobPolicy(), new_job_id)


def as_user(url: str, name: str) -> str:
    return make_url(url).set(username=name).render_as_string(hide_password=False)


def typed(url: str, statement: str) -> None:
    with create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT").connect() as connection:
        raw = connection.connection.cursor()
        raw.execute(statement)


@contextmanager
def calling(url: str, role: str, **claims: str) -> Generator[Connection]:
    """One call through the gateway: it logs in as itself and becomes what the token says."""
    engine = create_engine(as_user(url, GATEWAY), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(f"SET LOCAL ROLE {role}"))
        said = json.dumps({"role": role, **claims})
        connection.execute(text("SELECT set_config('request.jwt.claims', :said, true)"), {"said": said})
        yield connection


def ask(url: str, worker: str, query: str) -> list[Any]:
    with calling(url, "herdsman_worker", worker_id=worker) as connection:
        return list(connection.execute(text(query)))


def test_a_worker_lives_through_its_task_by_functions_alone(services: Services, url: str) -> None:
    worker, job_id = a_worker(services), a_job(services)
    ((taken, *_),) = ask(url, worker, "SELECT id FROM claim_task('w1')")
    assert taken == job_id
    assert ask(url, worker, "SELECT func_update_worker_heartbeat('w1')") == [(True,)]
    assert ask(url, worker, f"SELECT mark_task_complete('{job_id}', '[1]')") == [("Complete",)]
    assert find_job(services, job_id).result == [1]
    assert replayed(services, job_id) == JobStatus.DONE


@pytest.mark.parametrize("role", ["herdsman_worker", "anon", "authenticated"])
def test_nobody_outside_reads_or_writes_a_table_or_a_view(services: Services, url: str, role: str) -> None:
    a_job(services)
    for name in RELATIONS:
        refused(url, role, f"SELECT * FROM {name}")
    for table in metadata.tables:
        refused(url, role, f"DELETE FROM {table}")
    refused(url, role, "UPDATE job_states SET status = 'done'")
    refused(url, role, "INSERT INTO workers (id) VALUES ('w')")
    refused(url, role, "SELECT nextval('audit_entries_id_seq')")
    refused(url, role, "CREATE FUNCTION task_face_claim(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'")


def refused(url: str, role: str, statement: str) -> None:
    with pytest.raises(ProgrammingError, match="permission denied"), calling(url, role) as connection:
        connection.execute(text(statement))


def test_a_table_that_is_granted_by_mistake_still_shows_nothing(services: Services, url: str) -> None:
    """Row level security is the second lock, also behind the views."""
    a_job(services)
    typed(url, "GRANT SELECT ON job_states, job_bodies, job_ends, past_attempts, orchestrator_jobs, tasks TO anon")
    for name in ("job_states", "orchestrator_jobs", "tasks"):
        with calling(url, "anon") as connection:
            assert list(connection.execute(text(f"SELECT * FROM {name}"))) == []


def test_a_worker_cannot_act_for_another(services: Services, url: str) -> None:
    for name in ("w1", "w2"):
        a_worker(services, name)
    job_id = a_job(services)
    ask(url, "w1", "SELECT * FROM claim_task('w1')")
    for query in (
        "SELECT * FROM claim_task('w1')",
        "SELECT * FROM func_claim_available_task('w1')",
        "SELECT func_update_worker_heartbeat('w1')",
        f"SELECT mark_task_complete('{job_id}')",
        f"SELECT mark_task_failed('{job_id}', 'mine now', 1)",
        "SELECT mark_task_failed('unknown')",
    ):
        with pytest.raises(ProgrammingError, match="must carry the worker_id"):
            ask(url, "w2", query)
    assert find_job(services, job_id).worker_id == "w1"


def test_a_worker_whose_token_names_none_gets_nothing(services: Services, url: str) -> None:
    a_worker(services)
    a_job(services)
    with (
        pytest.raises(ProgrammingError, match="must carry the worker_id"),
        calling(url, "herdsman_worker") as connection,
    ):
        connection.execute(text("SELECT * FROM claim_task('w1')"))


@pytest.mark.parametrize(
    ("role", "functions"),
    [("anon", ()), ("authenticated", ()), ("herdsman_worker", WORKER_FUNCTIONS), ("service_role", PUBLIC)],
)
def test_who_may_run_what(services: Services, role: str, functions: tuple[str, ...]) -> None:
    query = text(
        "SELECT name FROM unnest(CAST(:names AS text[])) name"
        " WHERE has_function_privilege(:role, CAST(CAST(name AS regproc) AS oid), 'EXECUTE')"
    ).bindparams(names=[*PUBLIC, *script("postgresql").inner], role=role)
    found = services.database.read(lambda tx: tx.execute(query).scalars().all())
    assert sorted(found) == sorted(functions)


def test_the_control_plane_goes_on_and_so_does_the_next_upgrade(services: Services, url: str) -> None:
    worker = a_worker(services)
    beat(services, worker)
    upgrade(services.database)
    require_current(services.database)
    a_job(services)
    assert len(ask(url, worker, "SELECT id FROM claim_task('w1')")) == 1, "the right outlives the upgrade"
    with calling(url, "anon") as connection:  # which had to make the views anew
        shown = connection.execute(text("SELECT has_table_privilege('anon', 'orchestrator_jobs', 'SELECT')"))
        assert shown.scalar() is False
        with pytest.raises(ProgrammingError, match="permission denied"):
            connection.execute(text("SELECT * FROM tasks"))
    typed(url, supabase_sql("public"))
    refused(url, "anon", "SELECT * FROM tasks")


def test_every_table_has_its_lock_and_one_policy(services: Services) -> None:
    locked = "c.relrowsecurity AND c.relforcerowsecurity AND COUNT(p.oid) = 1"
    query = (
        f"SELECT c.relname FROM pg_class c LEFT JOIN pg_policy p ON p.polrelid = c.oid AND p.polroles <> '{{0}}'"
        " WHERE c.relnamespace = CAST('public' AS regnamespace) AND c.relkind = 'r'"
        f" GROUP BY c.oid HAVING NOT ({locked})"
    )
    assert services.database.read(lambda tx: tx.execute(text(query)).scalars().all()) == []


def test_nothing_is_left_out_where_nothing_else_was_loaded() -> None:
    program = "from herdsman.db.tasks_sql import supabase_sql; print(supabase_sql('public'), end='')"
    alone = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert alone.stdout == supabase_sql("public")


def test_a_name_with_a_quote_stays_a_name() -> None:
    said = supabase_sql("my 'old' \"herd\"", roles=['a"b'])
    assert 'ON SCHEMA "my \'old\' ""herd""" FROM PUBLIC' in said
    assert '\'"my \'\'old\'\' ""herd"""."workers"\'' in said
    assert '\'CURRENT_USER, "a""b"\'' in said
