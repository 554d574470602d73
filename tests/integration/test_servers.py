"""The private servers keep their promises: they start, answer, keep data, fall silent, and are gone at the end."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import NullPool, create_engine, text

from tests.support.servers.mariadb import MariadbServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.process import ServerStartError, find_process, has_ended
from tests.support.servers.redis import RedisServer

SqlServer = PostgresServer | MariadbServer
AnyServer = SqlServer | RedisServer


@pytest.fixture(scope="module", params=[PostgresServer, MariadbServer, RedisServer])
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyServer]:
    kind: type[AnyServer] = request.param
    with kind(tmp_path_factory.mktemp("server")) as running:
        if not isinstance(running, RedisServer):
            running.create_database("notes")
            execute(running, "CREATE TABLE note (body VARCHAR(50))")
        yield running


@pytest.fixture
def server(started: AnyServer) -> Iterator[AnyServer]:
    yield started
    started.restart()


def test_data_outlives_a_restart(server: AnyServer) -> None:
    write(server, "kept")
    server.restart()
    assert read(server) == "kept"


def test_a_committed_write_outlives_a_kill(server: AnyServer) -> None:
    write(server, "kept")
    server.kill()
    assert not listening(server)
    server.start()
    assert read(server) == "kept"


def test_a_paused_server_accepts_and_says_nothing_until_it_is_resumed(server: AnyServer) -> None:
    server.pause()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(0.3)
        connection.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1)
    server.resume()
    write(server, "after")
    assert read(server) == "after"


def test_a_stopped_server_is_gone(server: AnyServer) -> None:
    pid = server.pid
    server.stop()
    assert find_process(pid) is None
    assert not listening(server)


def test_a_paused_server_can_be_stopped(server: AnyServer) -> None:
    server.pause()
    server.stop()
    assert not listening(server)


def test_it_listens_on_the_loopback_address_only(server: AnyServer) -> None:
    port = f"{server.port:04X}"
    listening_state = "0A"
    tables = [table.read_text() for table in Path("/proc/net").glob("tcp*")]
    lines = [line.split() for table in tables for line in table.splitlines()]
    bound = {row[1] for row in lines if row[1].endswith(f":{port}") and row[3] == listening_state}
    assert bound == {f"0100007F:{port}"}


def test_the_version_is_a_number(server: AnyServer) -> None:
    assert all(part.isdecimal() for part in server.version.split("."))


@pytest.mark.parametrize("kind", [PostgresServer, MariadbServer])
def test_a_database_can_be_dropped_although_somebody_uses_it(kind: type[SqlServer]) -> None:
    with kind() as server:
        server.create_database("brief")
        connection = create_engine(server.url("brief"), poolclass=NullPool).connect()
        server.drop_database("brief")
        server.create_database("brief")
        connection.invalidate()
        connection.close()
    assert not server.home.path.exists()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_does_not_outlive_tests_that_are_killed(ending: signal.Signals) -> None:
    program = (
        "import signal; from tests.support.servers.postgres import PostgresServer\n"
        "server = PostgresServer(); server.start(); server.pause()\n"
        "print(server.pid, server.home.path, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        pid, home = tests.stdout.readline().split()
        started = find_process(int(pid))
        assert started is not None
        os.kill(tests.pid, ending)
    assert has_ended(started, within=timedelta(seconds=20))
    wait_until_removed(Path(home))


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "first") as first:
        second = RedisServer(tmp_path / "second")
        second.port = first.port
        with pytest.raises(ServerStartError, match="Address already in use"):
            second.start()


def write(server: AnyServer, body: str) -> None:
    match server:
        case RedisServer():
            with redis_client(server) as client:
                client.set("note", body)
        case _:
            execute(server, "DELETE FROM note")
            execute(server, "INSERT INTO note VALUES (:body)", body=body)


def read(server: AnyServer) -> object:
    match server:
        case RedisServer():
            with redis_client(server) as client:
                return client.get("note")
        case _:
            engine = create_engine(server.url("notes"), poolclass=NullPool)
            with engine.connect() as connection:
                return connection.scalar(text("SELECT body FROM note"))


def redis_client(server: RedisServer) -> Redis:
    # The client leaves the types of its options open.
    return Redis.from_url(server.url(), decode_responses=True)  # pyright: ignore[reportUnknownMemberType]


def execute(server: SqlServer, statement: str, **values: object) -> None:
    engine = create_engine(server.url("notes"), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(statement), values)


def listening(server: AnyServer) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", server.port)) == 0


def wait_until_removed(directory: Path) -> None:
    deadline = time.monotonic() + 20
    while directory.exists():
        assert time.monotonic() < deadline, f"{directory} was left behind"
        time.sleep(0.05)
