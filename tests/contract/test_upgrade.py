"""One call brings a database to this version's schema; it may be repeated, cut short, and made twice at once (S7)."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import event

from herdsman.control.services import Services
from herdsman.core.errors import StoreMisconfigured
from herdsman.core.model import JobPolicy
from herdsman.core.states import JobState
from herdsman.store import triggers
from herdsman.store.database import Database
from herdsman.store.schema import metadata
from herdsman.store.upgrade import latest, require_current, upgrade
from herdsman.wiring import new_job_id
from tests.builders import a_job, replayed, sql
from tests.databases import Backend, opened


@pytest.fixture
def empty_url(backend: Backend) -> Iterator[str]:
    url = backend.empty()
    yield url
    backend.drop(url)


@pytest.fixture
def empty(empty_url: str) -> Iterator[Database]:
    with opened(empty_url) as database:
        yield database


def test_an_empty_database_becomes_a_current_one(empty: Database) -> None:
    with pytest.raises(StoreMisconfigured, match="has no Herdsman tables yet: run herdsman db init"):
        require_current(empty)
    assert upgrade(empty) == latest()
    require_current(empty)


def test_a_second_upgrade_changes_nothing(empty: Database) -> None:
    upgrade(empty)
    services = Services(empty, JobPolicy(), new_job_id)
    job_id = a_job(services)
    upgrade(empty)
    require_current(empty)
    assert replayed(services, job_id) == JobState.PENDING


def test_the_migrations_lead_to_the_tables_of_the_code(database: Database) -> None:
    with database.alone() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": False})
        assert compare_metadata(context, metadata) == []


@pytest.mark.parametrize("statement", [1, 2, 3, 5, 8, 13, 21, 34, 55])
def test_s7_an_upgrade_that_was_cut_short_is_finished_by_the_next(empty: Database, statement: int) -> None:
    with power_cut_before(empty, statement), pytest.raises(PowerCutError):
        upgrade(empty)
    upgrade(empty)
    require_current(empty)
    services = Services(empty, JobPolicy(), new_job_id)
    assert replayed(services, a_job(services)) == JobState.PENDING


def test_two_upgrades_at_once_both_succeed(empty_url: str) -> None:
    program = (
        "import sys; from herdsman.store.upgrade import upgrade; from herdsman.store.database import Database\n"
        "from herdsman.wiring import SystemClock; print(upgrade(Database(sys.argv[1], clock=SystemClock())))"
    )
    command = [sys.executable, "-c", program, empty_url]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0].strip() for process in both] == [latest()] * 2
    with opened(empty_url) as database:
        require_current(database)


def test_a_guard_that_is_missing_is_named_and_put_back(empty: Database) -> None:
    upgrade(empty)
    with empty.engine.begin() as connection:
        gone = next(name for name in sorted(triggers.installed(connection)) if "audit_final" in name)
        postgres = f"DROP TRIGGER {gone} ON orchestrator_audit"
        connection.exec_driver_sql(postgres if empty.backend == "PostgreSQL" else f"DROP TRIGGER {gone}")
    with pytest.raises(StoreMisconfigured, match="lacks the guards audit_final: run herdsman db upgrade"):
        require_current(empty)
    upgrade(empty)
    require_current(empty)


def test_a_schema_of_a_newer_version_is_left_alone(empty: Database) -> None:
    upgrade(empty)
    sql(empty, "UPDATE alembic_version SET version_num = '9999'")
    for ask in (require_current, upgrade):
        with pytest.raises(StoreMisconfigured, match="schema 9999, which is newer than this version of Herdsman"):
            ask(empty)


class PowerCutError(Exception):
    pass


@contextmanager
def power_cut_before(database: Database, statement: int) -> Iterator[None]:
    """Counted from the first one that changes something."""
    left = [statement]

    def count(*call: object) -> None:
        if str(call[2]).lstrip().upper().startswith(("CREATE", "INSERT", "UPDATE")):
            left[0] -= 1
            if left[0] == 0:
                raise PowerCutError

    event.listen(database.engine, "before_cursor_execute", count)
    try:
        yield
    finally:
        event.remove(database.engine, "before_cursor_execute", count)
