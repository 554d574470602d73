"""The databases that are measured, opened as in production: every commit is on the disk before the answer."""

import sqlite3
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.work import CLAIM_TTL_S
from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.db.upgrade import upgrade
from herdsman.jobs.model import JobPolicy
from herdsman.server.wiring import new_job_id
from tests.support.servers.mariadb import MariadbServer
from tests.support.servers.postgres import PostgresServer


@dataclass(frozen=True)
class Place:
    """A database system that is up, and where a database of it is found by its name."""

    name: str
    version: str
    urls: Mapping[str, str]


@contextmanager
def sqlite(names: list[str]) -> Generator[Place]:
    with TemporaryDirectory(prefix="herdsman-bench-") as directory:
        urls = {name: f"sqlite:///{Path(directory, name)}.db" for name in names}
        yield Place("SQLite", sqlite3.sqlite_version, urls)


@contextmanager
def postgres(names: list[str]) -> Generator[Place]:
    with PostgresServer(durable=True) as server:
        for name in names:
            server.create_database(name)
        yield Place("PostgreSQL", server.version, {name: server.url(name) for name in names})


@contextmanager
def mariadb(names: list[str]) -> Generator[Place]:
    with MariadbServer(durable=True) as server:
        for name in names:
            server.create_database(name)
        yield Place("MariaDB", server.version, {name: server.url(name) for name in names})


PLACES = {"sqlite": sqlite, "postgresql": postgres, "mariadb": mariadb}


class _Clock:
    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, duration: timedelta) -> None:
        time.sleep(duration.total_seconds())


@contextmanager
def opened(url: str) -> Generator[Services]:
    """A new database with our tables and guards."""
    database = Database(url, clock=_Clock())
    upgrade(database)
    policy = JobPolicy(claim_ttl=timedelta(seconds=CLAIM_TTL_S))
    try:
        yield Services(database, policy, new_job_id)
    finally:
        database.close()


@contextmanager
def connected(url: str) -> Generator[tuple[str, Any]]:
    """A driver's connection that was opened with our settings, and that SQLAlchemy then never sees again."""
    database = Database(url, clock=_Clock())
    pooled = database.engine.raw_connection()
    connection = pooled.driver_connection
    assert connection is not None
    pooled.detach()
    try:
        yield database.engine.dialect.name, connection
    finally:
        connection.close()
        database.close()
