"""The databases that are measured, opened as in production: every commit is on the disk before the answer."""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from bench.raw import TONGUES, Raw
from bench.work import CLAIM_TTL_S
from herdsman.control.services import Services
from herdsman.core.model import JobId, JobPolicy
from herdsman.store import triggers
from herdsman.store.database import Database
from herdsman.store.schema import metadata
from herdsman.testing.servers.mariadb import MariadbServer
from herdsman.testing.servers.postgres import PostgresServer

POSTGRES_MEMORY = "1GB"
MARIADB_MEMORY = "1G"


@dataclass(frozen=True)
class Place:
    """A database system that is up, and where a database of it is found by its name."""

    name: str
    version: str
    settings: str
    urls: Mapping[str, str]


class _Postgres(PostgresServer):
    """With the memory that a server of this size would be given."""

    def _command(self) -> list[str]:
        return [*super()._command(), "-c", f"shared_buffers={POSTGRES_MEMORY}"]


class _Mariadb(MariadbServer):
    def _command(self) -> list[str]:
        return [*super()._command(), f"--innodb-buffer-pool-size={MARIADB_MEMORY}"]


@contextmanager
def sqlite(names: list[str]) -> Iterator[Place]:
    with TemporaryDirectory(prefix="herdsman-bench-") as directory:
        urls = {name: f"sqlite:///{Path(directory, name)}.db" for name in names}
        yield Place("SQLite", sqlite3.sqlite_version, "journal_mode=WAL, synchronous=FULL", urls)


@contextmanager
def postgres(names: list[str]) -> Iterator[Place]:
    settings = f"fsync=on, synchronous_commit=on, full_page_writes=on, shared_buffers={POSTGRES_MEMORY}"
    with _Postgres(durable=True) as server:
        for name in names:
            server.create_database(name)
        yield Place("PostgreSQL", server.version, settings, {name: server.url(name) for name in names})


@contextmanager
def mariadb(names: list[str]) -> Iterator[Place]:
    settings = f"innodb_flush_log_at_trx_commit=1, innodb_buffer_pool_size={MARIADB_MEMORY}, no binary log"
    with _Mariadb(durable=True) as server:
        for name in names:
            server.create_database(name)
        yield Place("MariaDB", server.version, settings, {name: server.url(name) for name in names})


PLACES = {"sqlite": sqlite, "postgresql": postgres, "mariadb": mariadb}


class _Clock:
    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, duration: timedelta) -> None:
        time.sleep(duration.total_seconds())


@contextmanager
def opened(url: str) -> Iterator[Services]:
    """A new database with our tables and guards."""
    database = Database(url, clock=_Clock())
    with database.engine.begin() as connection:
        metadata.create_all(connection)
        triggers.install(connection)
    policy = JobPolicy(claim_ttl=timedelta(seconds=CLAIM_TTL_S))
    try:
        yield Services(database, policy, lambda: JobId(uuid4().hex))
    finally:
        database.close()


@contextmanager
def raw_on(url: str) -> Iterator[Raw]:
    """A driver's connection that was opened with our settings, and that SQLAlchemy then never sees again."""
    database = Database(url, clock=_Clock())
    pooled = database.engine.raw_connection()
    connection = pooled.driver_connection
    assert connection is not None
    pooled.detach()
    try:
        yield Raw(connection, TONGUES[database.engine.dialect.name])
    finally:
        connection.close()
        database.close()
