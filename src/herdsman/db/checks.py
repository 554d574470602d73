"""What every program checks before it works on a database: the server, its settings, and the schema.

Every command asks, so it does without Alembic, which takes a while to load.
"""

import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import Any

from sqlalchemy import Connection, inspect, text

from herdsman.db import guards, tasks_sql, views
from herdsman.db.connection import Database
from herdsman.db.errors import DAMAGED
from herdsman.errors import StoreMisconfigured

_SCRIPT = re.compile(r"v(\d{4})_\w+\.py")
"""Migrations stand in a row, and are named by their number."""


def require_current(database: Database) -> None:
    """What every program does at its start: refuse to work on a schema that it does not know."""
    inspect_server(database)
    fault = schema_fault(database)
    if fault is not None:
        raise StoreMisconfigured(fault)


def schema_fault(database: Database) -> str | None:
    """What keeps us from working on this schema, and what to do about it."""
    with database.alone() as connection:
        found = current(connection)
        if found is None:
            return "the database has no Herdsman tables yet: run herdsman db init"
        if found not in known():
            return unknown(found)
        if found != latest():
            return f"the database has schema {found}, we need {latest()}: run herdsman db upgrade"
        parts = {"guards": guards, "views": views, "tasks SQL:": tasks_sql}
        for what, part in parts.items():
            if gone := part.missing(connection):
                return f"the database lacks the {what} {', '.join(gone)}: run herdsman db upgrade"
        return None


RETIRED = frozenset(f"{number:04}" for number in range(1, 9))
"""Revisions from before the first release, whose migrations are gone."""


def unknown(found: str) -> str:
    """What a revision that we have no migration for means, and what to do."""
    if found in RETIRED:
        return (
            f"the database has schema {found}, from before the first release, which cannot be upgraded"
            " (its jobs are still readable with the version that made it)"
            ": point DATABASE_URL at an empty database and run herdsman db init"
        )
    return f"the database has schema {found}, which is newer than this version of Herdsman: upgrade Herdsman"


def current(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def latest() -> str:
    return max(known())


@cache
def known() -> frozenset[str]:
    names = (each.name for each in files("herdsman.db.migrations.versions").iterdir())
    return frozenset(found[1] for found in map(_SCRIPT.fullmatch, names) if found)


OLDEST = {"SQLite": (3, 35, 0), "PostgreSQL": (13,), "MariaDB": (10, 6)}
# Earlier versions can lose a committed write when WAL checkpoints and restarts race.
SAFE_SQLITE = (3, 51, 3)

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Server:
    product: str
    version: Version
    warnings: tuple[str, ...]
    """What may lose jobs, said at every start."""
    notes: tuple[str, ...] = ()
    """What is worth knowing once: `herdsman doctor` tells it."""

    def __str__(self) -> str:
        return f"{self.product} {_dotted(self.version)}"


def inspect_server(database: Database) -> Server:
    """The server behind the URL; `StoreMisconfigured` when we cannot run on it."""
    with database.alone() as connection:
        return inspect_behind(connection, database.backend)


def require_undamaged(database: Database, within: timedelta = timedelta(seconds=10)) -> None:
    """Of SQLite: `StoreMisconfigured` where the file has pages that make no sense.

    Most reads and writes never meet them, until one does in the middle of something. A file that is too large to be read
    within that time is looked at only as far as that.
    """
    if database.backend != "SQLite":
        return
    deadline = time.monotonic() + within.total_seconds()
    with database.alone() as connection:
        file: Any = connection.connection
        file.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        try:
            (said,) = file.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            said = "ok"
        finally:
            file.set_progress_handler(None, 0)
    if said != "ok":
        first = " ".join(said.split())
        raise StoreMisconfigured(f"the SQLite file {database.engine.url.database} is damaged: {first}; {DAMAGED}")


def inspect_behind(connection: Connection, product: str) -> Server:
    notes: tuple[str, ...] = ()
    match connection.dialect.name:
        case "sqlite":
            version, warnings = _version(connection, "SELECT sqlite_version()"), list[str]()
            mode = connection.execute(text("PRAGMA journal_mode")).scalar_one()
            if mode not in ("wal", "memory"):
                warnings = [f"SQLite's journal_mode is {mode}, not wal: is the file on a network drive?"]
            # Every distribution of today has such a version: no warning for each start.
            if version < SAFE_SQLITE:
                notes = (
                    f"SQLite {_dotted(version)} is older than {_dotted(SAFE_SQLITE)}, which repairs a rare loss of WAL data",
                )
        case "postgresql":
            version, warnings = _version(connection, "SHOW server_version"), list(_postgres(connection))
        case _:
            said = str(connection.execute(text("SELECT VERSION()")).scalar_one())
            if "MariaDB" not in said:
                needed = f"Herdsman needs MariaDB {_dotted(OLDEST['MariaDB'])} or newer"
                raise StoreMisconfigured(f"this server is MySQL {said}: {needed}")
            version, warnings = _version(connection, "SELECT VERSION()"), list(_mariadb(connection))
    oldest = OLDEST[product]
    if version < oldest:
        raise StoreMisconfigured(
            f"{product} {_dotted(version)} is too old: Herdsman needs {product} {_dotted(oldest)} or newer"
        )
    return Server(product, version, tuple(warnings), notes)


def _version(connection: Connection, asked: str) -> Version:
    """`10.11.6-MariaDB-0+deb12u1` and `15.18 (Debian 15.18-0)` alike."""
    said = str(connection.execute(text(asked)).scalar_one())
    # Old MariaDB servers put 5.5.5- in front, for clients that cannot read two digits.
    found = re.search(r"\d+(\.\d+)*", said.removeprefix("5.5.5-"))
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _dotted(version: Version) -> str:
    return ".".join(str(part) for part in version)


def _postgres(connection: Connection) -> Iterator[str]:
    if connection.execute(text("SELECT pg_is_in_recovery()")).scalar_one():
        raise StoreMisconfigured("this PostgreSQL server is a standby: point DATABASE_URL at the primary")
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        if connection.execute(text(f"SHOW {setting}")).scalar_one() == "off":
            yield f"PostgreSQL's {setting} is off: a crash of the server can lose jobs that were accepted"


def _mariadb(connection: Connection) -> Iterator[str]:
    rows = connection.execute(text(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({_MARIADB_ASKED})"))
    settings = {str(name): str(value) for name, value in rows}
    if settings.get("read_only") == "ON":
        raise StoreMisconfigured("this MariaDB server is read-only: point DATABASE_URL at the primary")
    if settings.get("log_bin") == "ON" and settings.get("binlog_format") == "STATEMENT":
        raise StoreMisconfigured("MariaDB's binlog_format is STATEMENT: SKIP LOCKED needs MIXED or ROW")
    if settings.get("innodb_flush_log_at_trx_commit") != "1":
        yield "MariaDB's innodb_flush_log_at_trx_commit is not 1: a crash can lose jobs that were accepted"
    if settings.get("wsrep_on") == "ON":
        yield "this is a Galera cluster: let Herdsman write through one node only"


_MARIADB_ASKED = "'read_only', 'log_bin', 'binlog_format', 'innodb_flush_log_at_trx_commit', 'wsrep_on'"
