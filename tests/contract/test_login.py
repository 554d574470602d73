"""Who may use the database, and what we say when we may not; a password is never shown."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text

from herdsman.context import Services
from herdsman.errors import StoreMisconfigured, StoreUnavailable
from herdsman.jobs.commands import list_jobs
from herdsman.jobs.model import JobPolicy
from herdsman.server.wiring import new_job_id, open_database
from herdsman.settings import load_settings
from tests.support.databases import ServerDatabases, make_schema, opened
from tests.support.servers.mariadb import MariadbServer
from tests.support.servers.postgres import PostgresServer

PASSWORD = "hunter2"


@pytest.fixture(scope="module", params=[PostgresServer, MariadbServer], ids=["postgresql", "mariadb"])
def guarded(request: pytest.FixtureRequest) -> Iterator[PostgresServer | MariadbServer]:
    """With `careful`, who needs the password and may do nothing once in."""
    kind: type[PostgresServer | MariadbServer] = request.param
    with kind() as server:
        server.create_database("guarded")
        make_schema(server.url("guarded"))
        if isinstance(server, PostgresServer):
            run(server, f"CREATE ROLE careful LOGIN PASSWORD '{PASSWORD}'")
            (server.home.data / "pg_hba.conf").write_text(
                "host all careful 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
            )
            server.restart()
        else:
            run(server, f"CREATE USER careful@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
            run(server, "GRANT INSERT ON guarded.orchestrator_jobs TO careful@'127.0.0.1'")
        yield server


@pytest.fixture
def login(guarded: PostgresServer | MariadbServer) -> str:
    """The URL of `careful`, without the password."""
    return str(make_url(guarded.url("guarded")).set(username="careful"))


@pytest.mark.parametrize("password", ["wrong", f"{PASSWORD}-wrong", None])
def test_a_wrong_password_is_refused_and_never_shown(login: str, password: str | None) -> None:
    said = refused(login, password)
    assert "does not let us in" in said
    assert "careful" in said
    assert "wrong" not in said
    assert PASSWORD not in said


def test_a_user_without_rights_is_told_so(login: str) -> None:
    said = refused(login, PASSWORD)
    assert "denied" in said
    assert "orchestrator_jobs" in said
    assert PASSWORD not in said


def test_a_login_that_is_refused_in_service_is_waited_out_and_its_file_read_again(
    guarded: PostgresServer | MariadbServer, login: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rotated password ended the replica, and its workers with it."""
    file = tmp_path / "url"
    file.write_text(with_password(login, PASSWORD))
    monkeypatch.setenv("HERDSMAN_DATABASE_URL_FILE", str(file))
    database = open_database(load_settings(cwd=tmp_path))
    try:
        database.read(lambda tx: tx.now())
        database.in_service = True
        change_password(guarded, "rotated")
        database.engine.dispose()
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="does not let us in") as caught:
                database.read(lambda tx: tx.now())
            assert PASSWORD not in str(caught.value)
        file.write_text(with_password(login, "rotated"))
        with pytest.raises(StoreUnavailable):
            database.read(lambda tx: tx.now())
        database.read(lambda tx: tx.now())
    finally:
        change_password(guarded, PASSWORD)
        database.close()


def test_a_table_that_is_away_in_service_is_waited_out(server: ServerDatabases) -> None:
    """A restore puts them back one after the other."""
    url = server.empty()
    with opened(url) as database:
        with pytest.raises(StoreMisconfigured):
            list_jobs(Services(database, JobPolicy(), new_job_id))
        database.in_service = True
        with pytest.raises(StoreUnavailable, match="herdsman db init"):
            list_jobs(Services(database, JobPolicy(), new_job_id))
    server.drop(url)


def change_password(server: PostgresServer | MariadbServer, password: str) -> None:
    postgres = isinstance(server, PostgresServer)
    run(
        server,
        f"ALTER ROLE careful PASSWORD '{password}'"
        if postgres
        else f"ALTER USER careful@'127.0.0.1' IDENTIFIED BY '{password}'",
    )


def with_password(login: str, password: str | None) -> str:
    return make_url(login).set(password=password).render_as_string(hide_password=False)


def refused(login: str, password: str | None) -> str:
    with opened(with_password(login, password)) as database, pytest.raises(StoreMisconfigured) as caught:
        list_jobs(Services(database, JobPolicy(), new_job_id))
    return str(caught.value)


def run(server: PostgresServer | MariadbServer, statement: str) -> None:
    with create_engine(server.url("guarded"), poolclass=NullPool).begin() as connection:
        connection.execute(text(statement))
