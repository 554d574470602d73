"""The view `tasks` with its functions is put in place by each upgrade, missed when it is gone, and never overwrites what is not ours."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import make_url, text

from herdsman.db.checks import require_current
from herdsman.db.connection import Database
from herdsman.db.tasks_sql import PUBLIC, script
from herdsman.db.upgrade import upgrade
from herdsman.errors import StoreMisconfigured
from tests.support.databases import Backend, ServerDatabases, opened

NAMED = "SELECT COUNT(*) FROM pg_proc WHERE proname = '{}' AND pronamespace = 'public'::regnamespace"


@pytest.fixture
def empty(backend: Backend) -> Iterator[Database]:
    url = backend.empty()
    with opened(url) as database:
        yield database
    backend.drop(url)


@pytest.fixture
def on_postgres(postgresql: ServerDatabases) -> Iterator[Database]:
    url = postgresql.empty()
    with opened(url) as database:
        yield database
    postgresql.drop(url)


def run(database: Database, *statements: str) -> None:
    with database.alone() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.commit()


def ask(database: Database, query: str) -> list[Any]:
    with database.alone() as connection:
        return list(connection.execute(text(query)))


def test_a_view_that_is_gone_is_noticed_and_put_back(empty: Database) -> None:
    upgrade(empty)
    run(empty, "DROP VIEW tasks")
    with pytest.raises(StoreMisconfigured, match="lacks the tasks SQL: tasks: run herdsman db upgrade"):
        require_current(empty)
    upgrade(empty)
    require_current(empty)


def test_a_table_of_that_name_is_left_alone(empty: Database) -> None:
    run(empty, "CREATE TABLE tasks (id INTEGER)")
    with pytest.raises(StoreMisconfigured, match="there is a table 'tasks'"):
        upgrade(empty)
    assert ask(empty, "SELECT id FROM tasks") == []


STALE = {
    "PostgreSQL": [
        "CREATE OR REPLACE FUNCTION task_face_reset(p_worker text) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
        "COMMENT ON FUNCTION task_face_reset IS 'herdsman 0 0'",
    ],
    "MariaDB": ["CREATE OR REPLACE FUNCTION task_face_reset(p text) RETURNS bigint COMMENT 'herdsman 0 0' RETURN 0"],
}
FOREIGN = {
    "PostgreSQL": "CREATE FUNCTION claim_task(n integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "MariaDB": "CREATE FUNCTION claim_task(n integer) RETURNS integer DETERMINISTIC RETURN 1",
}


class TestOnServers:
    @pytest.fixture
    def backend(self, server: ServerDatabases) -> Backend:
        return server

    def test_a_routine_of_another_version_is_noticed_and_replaced(self, empty: Database) -> None:
        upgrade(empty)
        run(empty, *STALE[empty.backend])
        with pytest.raises(StoreMisconfigured, match="lacks the tasks SQL: task_face_reset"):
            require_current(empty)
        upgrade(empty)
        require_current(empty)
        assert ask(empty, "SELECT task_face_reset('unknown')") == [(0,)]

    def test_a_function_of_that_name_is_left_alone(self, empty: Database) -> None:
        run(empty, FOREIGN[empty.backend])
        with pytest.raises(StoreMisconfigured, match="function claim_task that is not ours"):
            upgrade(empty)
        assert ask(empty, "SELECT claim_task(1)") == [(1,)]

    def test_one_that_is_no_longer_ours_is_dropped(self, empty: Database) -> None:
        upgrade(empty)
        old = [statement.replace("task_face_reset", "task_face_old") for statement in STALE[empty.backend]]
        run(empty, *old)
        upgrade(empty)
        found = ask(empty, "SELECT routine_name FROM information_schema.routines WHERE routine_name LIKE 'task_face%'")
        assert "task_face_old" not in {row[0] for row in found}


def test_an_owner_who_may_make_no_functions_is_told_what_to_grant(mariadb: ServerDatabases) -> None:
    url = mariadb.empty()
    name = make_url(url).database
    with opened(url) as database:
        run(
            database,
            "CREATE OR REPLACE USER clerk@'127.0.0.1'",
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES, TRIGGER, CREATE VIEW"
            f" ON `{name}`.* TO clerk@'127.0.0.1'",
        )
        clerk = make_url(url).set(username="clerk").render_as_string(hide_password=False)
        denied = "grant it CREATE ROUTINE and ALTER ROUTINE"
        with opened(clerk) as limited, pytest.raises(StoreMisconfigured, match=denied):
            upgrade(limited)
        run(database, f"GRANT CREATE ROUTINE, ALTER ROUTINE ON `{name}`.* TO clerk@'127.0.0.1'")
    with opened(clerk) as limited:  # a login of its own: MariaDB looks at such rights when one begins
        upgrade(limited)
        require_current(limited)
    mariadb.drop(url)


def test_one_that_takes_other_parameters_is_replaced_not_overloaded(on_postgres: Database) -> None:
    upgrade(on_postgres)
    run(
        on_postgres,
        "DROP FUNCTION claim_task",
        FOREIGN["PostgreSQL"],
        "COMMENT ON FUNCTION claim_task IS 'herdsman 0 0'",
    )
    upgrade(on_postgres)
    assert ask(on_postgres, NAMED.format("claim_task")) == [(1,)]
    assert ask(on_postgres, "SELECT * FROM claim_task('unknown')") == []


def test_one_that_was_gone_is_noticed(on_postgres: Database) -> None:
    upgrade(on_postgres)
    run(on_postgres, "DROP FUNCTION claim_task")
    with pytest.raises(StoreMisconfigured, match="lacks the tasks SQL: claim_task"):
        require_current(on_postgres)


def test_nobody_may_run_them_whatever_the_defaults_give_away(on_postgres: Database) -> None:
    role = "curious"
    run(
        on_postgres,
        f"DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        f"ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO {role}",
    )
    upgrade(on_postgres)
    for name in (*PUBLIC, *script("postgresql").inner):
        oid = f"CAST('{name}' AS regproc)::oid"
        assert ask(on_postgres, f"SELECT has_function_privilege('{role}', {oid}, 'EXECUTE')") == [(False,)]
        assert ask(on_postgres, NAMED.format(name)) == [(1,)], "there must be no overload"


def test_they_run_as_their_owner_and_look_only_where_they_were_made(on_postgres: Database) -> None:
    upgrade(on_postgres)
    names = ", ".join(f"'{name}'" for name in (*PUBLIC, *script("postgresql").inner))
    found = ask(on_postgres, f"SELECT DISTINCT prosecdef, proconfig FROM pg_proc WHERE proname IN ({names})")
    assert found == [(True, ["search_path=public, pg_temp"])]


def test_a_right_that_was_given_outlives_a_new_version(on_postgres: Database) -> None:
    upgrade(on_postgres)
    run(
        on_postgres,
        "DO $$ BEGIN CREATE ROLE trusted; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        "GRANT EXECUTE ON FUNCTION claim_task TO trusted",
        "UPDATE pg_description SET description = regexp_replace(description, '[0-9a-f]+$', 'older')"
        " WHERE objoid = CAST('claim_task' AS regproc)",
    )
    with pytest.raises(StoreMisconfigured, match="claim_task"):
        require_current(on_postgres)
    upgrade(on_postgres)
    require_current(on_postgres)
    right = "SELECT has_function_privilege('trusted', 'claim_task'::regproc::oid, 'EXECUTE')"
    assert ask(on_postgres, right) == [(True,)]
