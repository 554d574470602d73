"""A database that cannot be used says so in one sentence that names it, its fault and the next step."""

import traceback
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.errors import HerdsmanError, StoreMisconfigured, StoreUnavailable
from herdsman.jobs.commands import list_jobs
from herdsman.jobs.model import JobPolicy
from herdsman.server.wiring import new_job_id
from tests.support.builders import a_job
from tests.support.databases import Backend, ServerDatabases, opened
from tests.support.servers.server import free_port

SECRET = "hunter2"


def test_a_database_without_tables_says_what_to_run(backend: Backend) -> None:
    url = backend.empty()
    said = refused(url, StoreMisconfigured)
    assert "orchestrator_jobs" in said
    assert said.endswith("; run herdsman db init")
    backend.drop(url)


def test_a_server_that_is_not_there_cannot_be_reached(server: ServerDatabases) -> None:
    nowhere = make_url(server.fresh()).set(port=free_port())
    said = refused(str(nowhere), StoreUnavailable)
    assert str(nowhere.port) in said
    assert "cannot be reached" in said


def test_a_database_that_is_not_there_is_named(server: ServerDatabases) -> None:
    said = refused(str(make_url(server.fresh()).set(database="nowhere")), StoreMisconfigured)
    assert "nowhere" in said
    assert "does not let us in" in said


def test_a_user_that_is_not_there_is_named(server: ServerDatabases) -> None:
    said = refused(str(make_url(server.fresh()).set(username="nobody")), StoreMisconfigured)
    assert "nobody" in said


def test_an_error_does_not_show_what_was_in_the_statement(database: Database) -> None:
    """X5: statements carry payloads, and an error ends in the log with its whole history."""
    query = text("SELECT * FROM nowhere WHERE payload = :payload")
    with pytest.raises(HerdsmanError) as caught:
        database.transact(lambda tx: tx.execute(query, {"payload": SECRET}))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "redis://localhost/0", "oracle://a/b", "postgresql+asyncpg://a/b", "sqlite+x:///a"],
)
def test_a_url_that_cannot_be_used_says_which_can(url: str) -> None:
    with pytest.raises(
        StoreMisconfigured, match=r"DATABASE_URL cannot be used: .* Write sqlite:///file\.db, postgresql://"
    ):
        opened(url).__enter__()


def test_a_url_is_not_repeated_with_its_password() -> None:
    with pytest.raises(StoreMisconfigured) as caught:
        opened("oracle://ann:hunter2@host/db").__enter__()
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("to do: " * 1000)
    assert "file is not a database" in refused(f"sqlite:///{tmp_path}/notes.db", StoreMisconfigured)


def test_a_directory_is_no_database(tmp_path: Path) -> None:
    assert "unable to open database file" in refused(f"sqlite:///{tmp_path}", StoreMisconfigured)


def test_a_place_that_cannot_be_made_is_named() -> None:
    with pytest.raises(StoreMisconfigured, match=r"the directory /dev/null/x of the SQLite file cannot be made"):
        opened("sqlite:////dev/null/x/herdsman.db").__enter__()


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    refused(f"sqlite:///{tmp_path}/a/b/herdsman.db", StoreMisconfigured)
    assert (tmp_path / "a" / "b").is_dir()


def test_a_pool_that_is_empty_says_so(url: str) -> None:
    """J10: backpressure before the write"""
    moment = timedelta(seconds=0.2)
    with opened(url, timeout=moment, pool_size=1) as database, database.alone():
        services = Services(database, JobPolicy(), new_job_id)
        with pytest.raises(StoreUnavailable, match=r"no connection to \w+ became free for 0.2 s, 1 in use: "):
            a_job(services)


def test_readers_that_find_no_connection_are_told_what_sets_how_many_there_are(url: str) -> None:
    said = "1 in use: SQL_POOL_SIZE sets how many there are"
    with (
        opened(url, timeout=timedelta(seconds=1), pool_size=1) as database,
        pytest.raises(StoreUnavailable, match=said),
    ):
        database.read(lambda _: database.read(lambda tx: tx.now()))


def refused(url: str, kind: type[HerdsmanError]) -> str:
    with opened(url) as database, pytest.raises(kind) as caught:
        list_jobs(Services(database, JobPolicy(), new_job_id))
    said = str(caught.value)
    assert "\n" not in said
    return said
