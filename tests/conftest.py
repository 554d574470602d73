"""What every test may ask for: each of the three databases, fresh, with a clock that can be moved."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from herdsman.control.services import Services
from herdsman.core.model import JobPolicy
from herdsman.store.database import Database
from herdsman.testing.servers.mariadb import MariadbServer
from herdsman.testing.servers.postgres import PostgresServer
from herdsman.wiring import new_job_id
from tests.databases import Backend, MovingClock, ServerDatabases, SqliteFiles, opened
from tests.fuse import fuse

__all__ = ["fuse"]

DATABASES = ("sqlite", "postgresql", "mariadb")
RAN_ON = "database"
MEMORY = Path("/dev/shm")
ROOM_FOR_SERVERS = 2 * 1024**3


@pytest.fixture(scope="session", autouse=True)
def in_memory() -> Iterator[None]:
    """Where there is room, what the tests write stays in memory: MariaDB makes a table in 1 ms, not 30."""
    with pytest.MonkeyPatch.context() as patch:
        if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_FOR_SERVERS:
            patch.setattr(tempfile, "tempdir", str(MEMORY))
        yield


@pytest.fixture(scope="session")
def sqlite(in_memory: None) -> Iterator[Backend]:
    with tempfile.TemporaryDirectory(prefix="herdsman-") as directory:
        yield SqliteFiles(Path(directory))


@pytest.fixture(scope="session")
def postgresql(in_memory: None) -> Iterator[Backend]:
    with PostgresServer() as server:
        yield ServerDatabases(server)


@pytest.fixture(scope="session")
def mariadb(in_memory: None) -> Iterator[Backend]:
    with MariadbServer() as server:
        yield ServerDatabases(server)


@pytest.fixture(params=DATABASES)
def backend(request: pytest.FixtureRequest) -> Backend:
    """A test that asks for this, or for anything made from it, runs once on each database."""
    chosen: Backend = request.getfixturevalue(request.param)
    request.node.user_properties.append((RAN_ON, chosen.product))
    return chosen


@pytest.fixture(params=DATABASES[1:])
def server(request: pytest.FixtureRequest) -> ServerDatabases:
    """For what only a server can do: refuse a user, cut a connection, fall silent."""
    chosen: ServerDatabases = request.getfixturevalue(request.param)
    request.node.user_properties.append((RAN_ON, chosen.product))
    return chosen


@pytest.fixture
def url(backend: Backend) -> Iterator[str]:
    fresh = backend.fresh()
    yield fresh
    backend.drop(fresh)


@pytest.fixture
def clock() -> MovingClock:
    return MovingClock()


@pytest.fixture
def database(url: str, clock: MovingClock) -> Iterator[Database]:
    with opened(url, clock) as database:
        yield database


@pytest.fixture
def services(database: Database) -> Services:
    return Services(database, JobPolicy(), new_job_id)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    called = [report for report in reports if isinstance(report, pytest.TestReport) and report.when == "call"]
    counts = Counter(value for report in called for name, value in report.user_properties if name == RAN_ON)
    if counts:
        shown = [f"{product} ({count} tests)" for product, count in sorted(counts.items(), reverse=True)]
        terminalreporter.write_line(f"databases: {', '.join(shown)}")
