"""What every test may ask for: each of the three databases, fresh, with a clock that can be moved."""

import gc
import signal
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from ssl import SSLContext
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.jobs.model import JobPolicy
from herdsman.server.wiring import new_job_id
from tests.support.amounts import SOAK
from tests.support.control_loop import FleetHarness, a_harness
from tests.support.databases import (
    DATABASES,
    NOON,
    Backend,
    MovingClock,
    ServerDatabases,
    SqliteFiles,
    opened,
    quick_place,
)
from tests.support.pools import a_pool_harness
from tests.support.power_cut import fuse
from tests.support.servers.mariadb import MariadbServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer

__all__ = ["fuse"]

RAN_ON = "database"

FIRST = ("integration", "docs", "browser", "simulation")
SPREAD = frozenset(
    {
        "tests/api/test_abuse.py",
        "tests/api/test_odd_values.py",
        "tests/api/test_schema.py",
        "tests/chaos/test_comfyui_kills.py",
        "tests/chaos/test_database_away.py",
        "tests/chaos/test_kills.py",
        "tests/contract/test_life_machine.py",
        "tests/docs/test_examples.py",
        "tests/integration/test_chaos_commands.py",
        "tests/integration/test_connector_commands.py",
        "tests/integration/test_local_fleet.py",
        "tests/integration/test_pool_restart.py",
        "tests/integration/test_up_and_down.py",
        "tests/simulation/test_databases.py",
        "tests/simulation/test_seeds.py",
    }
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Where the tests run in the background of a script, Ctrl-C is ignored, and so it would be by all that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that is busy with other tests is late without a fault. Each run tries other examples.
settings.register_profile("tests", deadline=None, max_examples=200 if SOAK else 25)
settings.load_profile("tests")


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Each client of HTTP would read all certificates of the system anew, which takes longer than most calls."""
    usual, new = httpx.create_ssl_context(), httpx.create_ssl_context

    def shared(*, verify: SSLContext | str | bool, cert: Any, trust_env: bool) -> SSLContext:
        return usual if verify is True and cert is None else new(verify, cert, trust_env)

    with patch("httpx._transports.default.create_ssl_context", shared):
        yield


@pytest.fixture(scope="session")
def sqlite() -> Iterator[Backend]:
    with quick_place():
        directory = tempfile.TemporaryDirectory(prefix="herdsman-")
    with directory as path:
        yield SqliteFiles(Path(path))


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Backend]:
    with quick_place():
        server = PostgresServer()
    with server:
        yield ServerDatabases(server)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Backend]:
    with quick_place():
        server = MariadbServer()
    with server:
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
def harness(services: Services, clock: MovingClock) -> Iterator[FleetHarness]:
    with a_harness(services, clock) as harness:
        yield harness


@pytest.fixture
def pool_loop(services: Services, clock: MovingClock) -> Iterator[FleetHarness]:
    """A control loop whose fleet is made of pools alone."""
    with a_pool_harness(services, clock) as harness:
        yield harness


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
def url(backend: Backend) -> Iterator[str]:
    fresh = backend.fresh()
    yield fresh
    backend.drop(fresh)


@pytest.fixture
def clock() -> MovingClock:
    return MovingClock()


@pytest.fixture
def stopped_clock(clock: MovingClock) -> MovingClock:
    """It is noon until the test moves it."""
    clock.stop(at=NOON)
    return clock


@pytest.fixture
def database(url: str, clock: MovingClock) -> Iterator[Database]:
    with opened(url, clock) as database:
        yield database


@pytest.fixture
def services(database: Database) -> Services:
    return Services(database, JobPolicy(), new_job_id)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end: nobody looks for garbage among ten thousand tests and all modules."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    test = metafunc.definition
    on_one = test.get_closest_marker("one_database") and not test.get_closest_marker("every_database")
    if on_one and not SOAK and "backend" in metafunc.fixturenames:
        # Before pytest looks at the marks: this one has precedence over the databases of the fixture.
        test.add_marker(pytest.mark.parametrize("backend", DATABASES[:1], indirect=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts whole programs comes first: a long one that begins when all others are done would be waited for."""
    items.sort(key=lambda item: item.path.relative_to(Path(__file__).parent).parts[0] not in FIRST)


class FileScheduling(LoadScopeScheduling):
    """A file runs in one process, so that what it starts is started once. The tests of files in `SPREAD` are long and
    share nothing: each of them may run in another process."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file in SPREAD else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    called = [report for report in reports if isinstance(report, pytest.TestReport) and report.when == "call"]
    counts = Counter(value for report in called for name, value in report.user_properties if name == RAN_ON)
    if counts:
        shown = [f"{product} ({count} tests)" for product, count in sorted(counts.items(), reverse=True)]
        terminalreporter.write_line(f"databases: {', '.join(shown)}")
