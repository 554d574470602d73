"""A fresh database for each test on SQLite, PostgreSQL and MariaDB, and a clock that a test can move."""

import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Protocol
from unittest.mock import patch
from uuid import uuid4

import pytest
from sqlalchemy import Engine, NullPool, create_engine, make_url, text

from herdsman.db import connection, guards
from herdsman.db.connection import Compiled, Database
from herdsman.db.engine import Engines, open_engines
from herdsman.db.schema import metadata
from herdsman.db.statements import PreparedStatement
from herdsman.db.upgrade import upgrade
from herdsman.ports import SystemClock
from tests.support.servers.mariadb import MariadbServer
from tests.support.servers.postgres import PostgresServer

DATABASES = ("sqlite", "postgresql", "mariadb")

one_database = pytest.mark.one_database
"""For a file whose tests are about rules that no database decides: in `make test` they run on SQLite, in `make soak` on
all three. Between them, its tests with `every_database` and the other contract tests run each of its statements on all
three in `make test` as well, and all that is about races, locks, guards and fences."""
every_database = pytest.mark.every_database
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TIMEOUT = timedelta(seconds=10)
MEMORY = Path("/dev/shm")
ROOM_FOR_SERVERS = 2 * 1024**3


@contextmanager
def quick_place() -> Generator[None]:
    """What is made in the block lives in memory, where there is room: MariaDB makes a table in 1 ms, not 30."""
    usual = tempfile.tempdir
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_FOR_SERVERS:
        tempfile.tempdir = str(MEMORY)
    try:
        yield
    finally:
        tempfile.tempdir = usual


class MovingClock:
    """What the database says the time is: its own clock, moved by the test or stopped by it."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)
        self._stopped_at: datetime | None = None

    def advance(self, by: timedelta) -> None:
        self._ahead += by

    def stop(self, at: datetime) -> None:
        """From here on it moves only when told to."""
        self._ahead, self._stopped_at = timedelta(0), at

    def shown(self, real: datetime) -> datetime:
        return (self._stopped_at or real) + self._ahead


@contextmanager
def opened(
    url: str, clock: MovingClock | None = None, *, timeout: timedelta = TIMEOUT, pool_size: int = 10
) -> Generator[Database]:
    """A `Database` of its own on engines that may have served an earlier test.

    A new engine compiles every statement again, and asks MariaDB a dozen questions at its first connection: that takes
    longer than most tests. So engines of servers are kept, without connections, until the same URL is opened again. A
    file of SQLite is never opened again: a late thread of an earlier test would leave a connection to the file that was.
    Its engines are new, and share what engines of earlier files have compiled.
    """
    moving = clock or MovingClock()
    unused = _UNUSED[url, timeout, pool_size]
    kept = unused.pop() if unused else _new(url, timeout, pool_size)
    with patch.object(connection, "open_engines", return_value=kept.engines):
        database = Database(
            url,
            clock=SystemClock(),
            timeout=timeout,
            pool_size=pool_size,
            clock_of=lambda tx: moving.shown(database.read_clock(tx)),
        )
    database._compiled = kept.compiled  # pyright: ignore[reportPrivateUsage]
    try:
        yield database
    finally:
        database.close()
        if not url.startswith("sqlite"):
            unused.append(kept)


@dataclass
class _Kept:
    engines: Engines
    compiled: dict[tuple[PreparedStatement, int], Compiled] = field(
        default_factory=dict[tuple[PreparedStatement, int], Compiled]
    )


_UNUSED: defaultdict[tuple[str, timedelta, int], list[_Kept]] = defaultdict(list)
_SQLITE: list[_Kept] = []
"""The first file that was opened: all later ones have its dialects, and its compiled statements."""


def _new(url: str, timeout: timedelta, pool_size: int) -> _Kept:
    kept = _Kept(open_engines(url, timeout=timeout, pool_size=pool_size, login={}))
    if not url.startswith("sqlite:///"):
        return kept
    if not _SQLITE:
        _SQLITE.append(kept)
        return kept
    (first,) = _SQLITE
    for engine, like in zip(_both(kept.engines), _both(first.engines), strict=True):
        engine.dialect = engine.pool._dialect = like.dialect  # pyright: ignore[reportPrivateUsage]
        engine._compiled_cache = like._compiled_cache  # pyright: ignore[reportPrivateUsage]
    return _Kept(kept.engines, first.compiled)


def _both(engines: Engines) -> tuple[Engine, Engine]:
    return engines.writing, engines.reading


class Backend(Protocol):
    """One of the three databases, as the tests use it."""

    @property
    def product(self) -> str:
        """Its name and version, for the summary."""
        ...

    def fresh(self) -> str:
        """The URL of a database with all tables and nothing in them."""
        ...

    def empty(self) -> str:
        """The URL of a database without tables."""
        ...

    def drop(self, url: str) -> None: ...


class SqliteFiles:
    def __init__(self, directory: Path) -> None:
        self.product = f"SQLite {sqlite3.sqlite_version}"
        self._directory = directory

    def fresh(self) -> str:
        url = self.empty()
        Path(url.removeprefix("sqlite:///")).write_bytes(sqlite_file())
        return url

    def empty(self) -> str:
        return f"sqlite:///{self._directory / uuid4().hex}.db"

    def drop(self, url: str) -> None:
        file = Path(url.removeprefix("sqlite:///"))
        for left in file.parent.glob(f"{file.name}*"):
            left.unlink()


class ServerDatabases:
    """A database takes longer to make than most tests to run, so they share one that is emptied in between."""

    SHARED = "shared"

    def __init__(self, server: PostgresServer | MariadbServer) -> None:
        self.server = server
        self.product = f"{NAMES[server.program]} {server.version}"
        server.create_database(self.SHARED)
        make_schema(server.url(self.SHARED))
        self._engine = create_engine(server.url(self.SHARED), poolclass=NullPool)
        self._filled = text(
            " UNION ALL ".join(
                f"SELECT '{name}' FROM (SELECT 1 FROM {name} LIMIT 1) AS any_row" for name in metadata.tables
            )
        )

    def fresh(self) -> str:
        with self._engine.begin() as connection:
            assert not guards.missing(connection), "an earlier test has taken guards away"
            connection.execute(text(UNGUARDED[connection.dialect.name]))
            # MariaDB lets nobody past its triggers, but has none for TRUNCATE, which is much slower.
            kept = KEPT if connection.dialect.name == "mysql" else ()
            for table in connection.scalars(self._filled).all():
                emptied = "TRUNCATE" if table in kept else "DELETE FROM"
                connection.execute(text(f"{emptied} {table}"))
        return self.server.url(self.SHARED)

    def empty(self) -> str:
        name = uuid4().hex
        self.server.create_database(name)
        return self.server.url(name)

    def drop(self, url: str) -> None:
        name = make_url(url).database
        assert name is not None
        if name != self.SHARED:
            self.server.drop_database(name)


NAMES = {"postgres": "PostgreSQL", "mariadbd": "MariaDB"}
# The guards keep everyone from deleting what is live; this is how a superuser gets past them.
UNGUARDED = {
    "postgresql": "SET LOCAL session_replication_role = replica",
    "mysql": "SET foreign_key_checks = 0",
}
KEPT = frozenset(guard.table for guard in guards.all_guards() if guard.event == "DELETE")


@cache
def sqlite_file() -> bytes:
    """A database with all tables and nothing in them: writing it down is many times as fast as making it."""
    with quick_place(), tempfile.TemporaryDirectory(prefix="herdsman-") as directory:
        file = Path(directory) / "template.db"
        make_schema(f"sqlite:///{file}")
        return file.read_bytes()


def make_schema(url: str) -> None:
    with opened(url) as database:
        upgrade(database)
