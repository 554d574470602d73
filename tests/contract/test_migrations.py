"""The way to the schema: complete, repeatable, safe when it is cut short or walked by two at once."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, make_url, text

from herdsman.db import checks as checks_module
from herdsman.db import connection as connection_module
from herdsman.db import guards
from herdsman.db import upgrade as upgrade_module
from herdsman.db.checks import known, latest, require_current, schema_fault
from herdsman.db.connection import Database
from herdsman.db.errors import Refused
from herdsman.db.guards import all_guards
from herdsman.db.schema import metadata
from herdsman.db.upgrade import alembic_config, upgrade
from herdsman.errors import StoreMisconfigured, StoreUnavailable
from herdsman.states import JOB, JobStatus
from tests.support.builders import scalar, sql
from tests.support.databases import Backend, opened
from tests.support.rows import add_row, move_row

SLOW = timedelta(seconds=4)


@pytest.fixture
def empty(backend: Backend):
    url = backend.empty()
    with opened(url) as database:
        yield database
    backend.drop(url)


def test_the_migrations_lead_to_the_schema_of_the_code(database: Database) -> None:
    with database.alone() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, metadata) == []
        for table in metadata.tables.values():
            found = {check["name"] for check in inspect(connection).get_check_constraints(table.name)}
            named = {str(check.name) for check in table.constraints if str(check.name).startswith("ck_")}
            assert named <= found, f"{table.name} lacks CHECKs"


def test_the_names_of_the_migrations_say_what_alembic_finds_in_them() -> None:
    scripts = ScriptDirectory.from_config(alembic_config())
    assert latest() == scripts.get_current_head()
    assert known() == {script.revision for script in scripts.walk_revisions()}


def test_an_empty_database_is_named_and_then_made(empty: Database) -> None:
    assert schema_fault(empty) == "the database has no Herdsman tables yet: run herdsman db init"
    assert upgrade(empty) == latest()
    assert schema_fault(empty) is None


def test_an_upgrade_may_be_repeated(database: Database) -> None:
    with database.alone() as connection:
        before = guards.installed(connection)
    upgrade(database)
    with database.alone() as connection:
        assert guards.installed(connection) == before
        assert len(before) == len(all_guards())


def test_two_upgrades_at_once_do_not_disturb_each_other(empty: Database) -> None:
    url = empty.engine.url.render_as_string(hide_password=False)
    with opened(url) as other, ThreadPoolExecutor(2) as threads:
        assert list(threads.map(upgrade, [empty, other])) == [latest(), latest()]
    require_current(empty)


def test_an_upgrade_may_take_longer_than_any_statement_and_another_waits_for_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index over a million rows takes its time, and a second replica that starts meanwhile wants the same."""
    url, slept = backend.empty(), slowly(monkeypatch)
    hurried = make_url(url)
    if hurried.get_backend_name() == "postgresql":  # as some who host it set it for each role
        hurried = hurried.update_query_dict({"options": "-c statement_timeout=1000"})
    everywhere = hurried.render_as_string(hide_password=False)
    with (
        opened(everywhere, timeout=SLOW / 4) as one,
        opened(everywhere, timeout=SLOW / 4) as other,
        ThreadPoolExecutor(2) as threads,
    ):
        assert list(threads.map(upgrade, [one, other])) == [latest(), latest()]
        require_current(one)
    assert slept == ["before", "after"] * 2, "one after the other"
    backend.drop(url)


def test_another_upgrade_is_not_waited_for_without_end(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    url = backend.empty()
    slowly(monkeypatch)
    for module in (upgrade_module, connection_module):
        monkeypatch.setattr(module, "LONGEST_REBUILDING", SLOW / 4)
    with opened(url) as one, opened(url) as other, ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(upgrade, each) for each in (one, other)]
        (failed,) = [error for call in calls if (error := call.exception(timeout=60))]
        require_current(one)
    assert isinstance(failed, StoreUnavailable)
    backend.drop(url)


def slowly(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each upgrade takes a while from now on, and writes down when that begins and ends."""
    told: list[str] = []

    def install(connection: Connection) -> None:
        told.append("before")
        if connection.dialect.name == "sqlite":
            time.sleep(SLOW.total_seconds())
        else:
            sleep = {"postgresql": "SELECT pg_sleep(:s)", "mysql": "SELECT SLEEP(:s)"}[connection.dialect.name]
            connection.execute(text(sleep), {"s": SLOW.total_seconds()}).all()
        told.append("after")
        guards.install(connection)

    monkeypatch.setattr(upgrade_module, "guards", SimpleNamespace(install=install))
    return told


def test_a_guard_that_is_gone_is_noticed_and_put_back(empty: Database) -> None:
    upgrade(empty)
    with empty.alone() as connection:
        name = next(name for name in guards.installed(connection) if "_job_moves_" in name)
        on = " ON job_states" if connection.dialect.name == "postgresql" else ""
        connection.execute(text(f"DROP TRIGGER {name}{on}"))
        connection.commit()
    with pytest.raises(StoreMisconfigured, match="lacks the guards job_moves: run herdsman db upgrade"):
        require_current(empty)
    upgrade(empty)
    require_current(empty)


def test_a_guard_of_an_older_version_is_replaced(empty: Database) -> None:
    upgrade(empty)
    stale = "herdsman_job_moves_00000000"
    with empty.alone() as connection:
        _install_stale(connection.dialect.name, stale, connection.exec_driver_sql)
        connection.commit()
    upgrade(empty)
    with empty.alone() as connection:
        assert stale not in guards.installed(connection)


def test_a_schema_of_a_newer_version_is_left_alone(empty: Database) -> None:
    upgrade(empty)
    with empty.alone() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.commit()
    for step in (require_current, upgrade):
        with pytest.raises(StoreMisconfigured, match="schema 9999, which is newer"):
            step(empty)


def _install_stale(dialect: str, name: str, run: object) -> None:
    assert callable(run)
    texts = {
        "sqlite": [f"CREATE TRIGGER {name} BEFORE UPDATE ON job_states BEGIN SELECT 1; END"],
        "mysql": [f"CREATE TRIGGER {name} BEFORE UPDATE ON job_states FOR EACH ROW SET @nothing = 1"],
        "postgresql": [
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
            f"CREATE TRIGGER {name} BEFORE UPDATE ON job_states FOR EACH ROW EXECUTE FUNCTION {name}()",
        ],
    }
    for statement in texts[dialect]:
        run(statement)


@pytest.mark.parametrize("old", ["0001", "0008"])
def test_a_schema_from_before_the_first_release_is_named_and_left_alone(empty: Database, old: str) -> None:
    upgrade(empty)
    with empty.alone() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :old"), {"old": old})
        connection.commit()
    for step in (require_current, upgrade):
        with pytest.raises(StoreMisconfigured, match=f"schema {old}, from before .* at an empty database"):
            step(empty)


SECOND = """
from alembic import op
from sqlalchemy import Column, Integer, text

revision, down_revision, branch_labels, depends_on = "9000", "{first}", None, None


def upgrade():
    sqlite = op.get_bind().dialect.name == "sqlite"
    if sqlite:  # it checks what every trigger refers to when a table is renamed
        for name in op.get_bind().scalars(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
            op.execute(f"DROP TRIGGER {{name}}")
    with op.batch_alter_table("job_states", recreate="always" if sqlite else "never") as jobs:
        jobs.add_column(Column("added", Integer(), nullable=False, server_default=text("7")))
"""


def test_jobs_of_an_older_schema_are_kept(empty: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite cannot change a rule of a table: there the upgrade moves the rows into a new one."""
    upgrade(empty)
    add_row(empty, JOB, "old")
    tag = "INSERT INTO job_tags (tag, job_id, created_at) SELECT 't', job_id, created_at FROM job_states"
    assert sql(empty, tag) == 1
    add_migration(tmp_path, monkeypatch)
    with pytest.raises(StoreMisconfigured, match="we need 9000: run herdsman db upgrade"):
        require_current(empty)
    assert upgrade(empty) == "9000"
    require_current(empty)
    move_row(empty, JOB, JobStatus.CLAIMED, "old")
    assert scalar(empty, "SELECT added FROM job_states WHERE job_id = 'old'") == 7
    with pytest.raises(Refused):
        sql(empty, "DELETE FROM job_states")


def add_migration(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more migration than the package has."""
    (directory / "v9000_second.py").write_text(SECOND.format(first=latest()))
    config, revisions = alembic_config(), {*known(), "9000"}
    packaged = Path(ScriptDirectory.from_config(config).versions)
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", f"{packaged}\n{directory}")
    monkeypatch.setattr(upgrade_module, "alembic_config", lambda: config)
    for module in (upgrade_module, checks_module):
        monkeypatch.setattr(module, "known", lambda: revisions)
