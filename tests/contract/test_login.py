"""Who may use the database, and what we say when we may not; a password is never shown."""

from collections.abc import Iterator

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text

from herdsman.control.commands import list_jobs
from herdsman.control.services import Services
from herdsman.core.errors import StoreMisconfigured
from herdsman.core.model import JobPolicy
from herdsman.testing.servers.mariadb import MariadbServer
from herdsman.testing.servers.postgres import PostgresServer
from herdsman.wiring import new_job_id
from tests.databases import make_schema, opened

PASSWORD = "hunter2"


@pytest.fixture(scope="module", params=[PostgresServer, MariadbServer], ids=["postgresql", "mariadb"])
def login(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of `careful`, who needs the password and may do nothing once in."""
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
        yield str(make_url(server.url("guarded")).set(username="careful"))


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


def refused(login: str, password: str | None) -> str:
    url = make_url(login).set(password=password).render_as_string(hide_password=False)
    with opened(url) as database, pytest.raises(StoreMisconfigured) as caught:
        list_jobs(Services(database, JobPolicy(), new_job_id))
    return str(caught.value)


def run(server: PostgresServer | MariadbServer, statement: str) -> None:
    with create_engine(server.url("guarded"), poolclass=NullPool).begin() as connection:
        connection.execute(text(statement))
