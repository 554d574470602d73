"""How each database is opened: what a connection must be told before we can rely on it."""

import os
import sqlite3
import stat
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

from platformdirs import user_data_path
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import QueuePool

from herdsman.errors import StoreMisconfigured

JOURNAL_TRIES = 100
PREPARED_AFTER, MOST_PREPARED = 3, 300
"""How often a statement is run before PostgreSQL is to remember it, and how many it remembers for each connection."""
_PRIVATE, _OTHERS = 0o600, 0o077
SUPPORTED = {"sqlite": "sqlite", "postgresql": "psycopg", "mysql": "pymysql"}


@dataclass(frozen=True, slots=True)
class Engines:
    """SQLite has one writing connection and several reading ones; the others need no such difference."""

    writing: Engine
    reading: Engine


def open_engines(
    url: str, *, timeout: timedelta, pool_size: int, login: Mapping[str, Any], prepare: bool = True
) -> Engines:
    """`login` is what every new connection is asked for with, in the place of what the URL says."""
    parsed = parse_url(url)
    try:
        match parsed.get_backend_name():
            case "sqlite":
                return _sqlite(parsed, timeout, pool_size)
            case "postgresql":
                engine = _postgres(parsed, timeout, pool_size, login)
                if prepare:
                    event.listen(engine, "connect", _postgres_prepares)
            case _:
                engine = _mariadb(parsed, timeout, pool_size, login)
    except ModuleNotFoundError as error:
        extra = {"psycopg": "postgres", "pymysql": "mariadb"}.get(error.name or "", "server")
        raise StoreMisconfigured(
            f"the driver {error.name!r} is not installed: run pip install 'herdsman[{extra}]'"
        ) from error
    return Engines(engine, engine)


def size_of(engine: Engine) -> int:
    """How many connections it opens at most."""
    assert isinstance(engine.pool, QueuePool)
    return engine.pool.size()


def parse_url(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend, driver = parsed.get_backend_name(), parsed.drivername.partition("+")[2]
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise StoreMisconfigured(_unusable("that is not a database URL")) from error
    if backend not in SUPPORTED or driver not in ("", "pysqlite", SUPPORTED[backend]):
        raise StoreMisconfigured(_unusable(f"{parsed.drivername!r} is not supported"))
    if not driver and backend != "sqlite":
        parsed = parsed.set(drivername=f"{backend}+{SUPPORTED[backend]}")
    return parsed


def _unusable(why: str) -> str:
    forms = "sqlite:///file.db, postgresql://user@host/name or mariadb://user@host/name"
    return f"DATABASE_URL cannot be used: {why}. Write {forms}"


def _sqlite(url: URL, timeout: timedelta, pool_size: int) -> Engines:
    writing = _sqlite_engine(url, timeout, begin="BEGIN IMMEDIATE", connections=1)
    event.listen(writing, "connect", _sqlite_journal)
    if url.database in (None, "", ":memory:"):
        return Engines(writing, writing)
    _make_directory(url)
    reading = _sqlite_engine(url, timeout, begin="BEGIN", connections=pool_size)

    def read_only(dbapi: Any, _record: object) -> None:
        dbapi.execute("PRAGMA query_only = ON")

    event.listen(reading, "connect", read_only)
    file = Path(url.database)

    def before_connect(*_asked: object) -> None:
        _make_private(file)

    for engine in (writing, reading):
        event.listen(engine, "do_connect", before_connect)
    return Engines(writing, reading)


def _make_directory(url: URL) -> None:
    directory = Path(url.database or "").parent
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory == user_data_path("herdsman", appauthor=False):  # any other may be shared with somebody
            directory.chmod(0o700)
    except OSError as error:
        raise StoreMisconfigured(
            f"the directory {directory} of the SQLite file cannot be made: {error.strerror}"
        ) from error


def _make_private(file: Path) -> None:
    """It holds payloads and results of all agents: other users of this machine have no business in it. SQLite gives
    the files beside it the rights that it has."""
    with suppress(OSError):  # SQLite says better what is wrong
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, _PRIVATE))
    for each in (file, *(file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm", "-journal"))):
        with suppress(FileNotFoundError, PermissionError):  # one of another user is for that user to repair
            mode = stat.S_IMODE(each.stat().st_mode)
            if mode & _OTHERS:
                each.chmod(mode & ~_OTHERS)


def _sqlite_engine(url: URL, timeout: timedelta, *, begin: str, connections: int) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        hide_parameters=True,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=timeout.total_seconds(),
        pool_reset_on_return=None,
        connect_args={"check_same_thread": False, "timeout": timeout.total_seconds(), "isolation_level": None},
    )
    event.listen(engine, "connect", _sqlite_pragmas)

    def begin_transaction(connection: Connection) -> None:
        # On the driver's own connection: this runs for every transaction, and Core's way costs as much again.
        connection.connection.cursor().execute(begin)

    event.listen(engine, "begin", begin_transaction)
    return engine


def _sqlite_pragmas(dbapi: Any, _record: object) -> None:
    for pragma in (
        "foreign_keys = ON",
        "recursive_triggers = ON",  # else REPLACE would delete past the guards
        "synchronous = FULL",
        "mmap_size = 0",
    ):
        dbapi.execute(f"PRAGMA {pragma}")


def _sqlite_journal(dbapi: Any, _record: object) -> None:
    """Of two that open a new file at once, SQLite refuses one without letting it wait."""
    for left in reversed(range(JOURNAL_TRIES)):
        try:
            dbapi.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not left or error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(0.05)
        else:
            return


def _postgres(url: URL, timeout: timedelta, pool_size: int, login: Mapping[str, Any]) -> Engine:
    seconds = max(1, round(timeout.total_seconds()))
    engine = create_engine(
        url,
        **_common(pool_size, timeout),
        connect_args={
            "connect_timeout": seconds,
            "tcp_user_timeout": seconds * 1000,
            "keepalives_idle": seconds,
            "application_name": "herdsman",
            "prepare_threshold": None,  # until the session is known to be our own
        },
    )
    event.listen(engine, "do_connect", partial(_log_in, login))  # first: the next one connects
    event.listen(engine, "do_connect", _connect_with_deadline)
    event.listen(engine, "connect", _postgres_json_as_text)
    return engine


def _postgres_json_as_text(dbapi: Any, _record: object) -> None:
    from psycopg.types.string import TextLoader  # noqa: PLC0415  (the driver is an extra)

    for name in ("json", "jsonb"):
        dbapi.adapters.register_loader(name, TextLoader)


def _postgres_prepares(dbapi: Any, _record: object) -> None:
    """Planning a statement takes longer than most of ours run, so they are prepared; but never behind a pooler.

    A pooler in transaction mode hands each transaction to another session, where the same name may stand for another
    client's statement. It answers the client in the place of a session, so the process that it names is none of the
    server's.
    """
    ((pid,),) = dbapi.execute("SELECT pg_backend_pid()").fetchall()
    dbapi.rollback()
    if pid == dbapi.info.backend_pid:
        dbapi.prepare_threshold, dbapi.prepared_max = PREPARED_AFTER, MOST_PREPARED


def _mariadb(url: URL, timeout: timedelta, pool_size: int, login: Mapping[str, Any]) -> Engine:
    seconds = max(1, round(timeout.total_seconds()))
    modes = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
    engine = create_engine(
        url,
        **_common(pool_size, timeout),
        # The default would turn a row changed since the snapshot into an error or a stale read.
        isolation_level="READ COMMITTED",
        connect_args={
            "charset": "utf8mb4",
            "connect_timeout": seconds,
            "read_timeout": seconds + 5,
            "write_timeout": seconds + 5,
            "init_command": (
                f"SET time_zone = '+00:00', sql_mode = '{modes}',"
                f" max_statement_time = {seconds}, innodb_lock_wait_timeout = {seconds},"
                # Who is stopped in the middle of a transaction must not keep its locks for ever.
                f" idle_transaction_timeout = {seconds}"
            ),
        },
    )
    event.listen(engine, "do_connect", partial(_log_in, login))
    return engine


def _log_in(
    login: Mapping[str, Any], _dialect: object, _record: object, _arguments: object, named: dict[str, Any]
) -> None:
    named.update(login)


def _common(size: int, timeout: timedelta) -> dict[str, Any]:
    # Every transaction ends in our own COMMIT or ROLLBACK; resetting again would be one more round trip.
    return {
        "paramstyle": "format",
        # They may hold payloads, and an error ends in the log.
        "hide_parameters": True,
        "pool_size": size,
        "max_overflow": 0,
        "pool_timeout": timeout.total_seconds(),
        "pool_reset_on_return": None,
        "pool_recycle": 1800,
    }


DEADLINE_SLACK = timedelta(seconds=5)
"""The server's own limit should strike first: it says what was wrong, and keeps the connection."""


def set_deadline(connection: Connection, per_statement: timedelta | None) -> Any:
    """How long one statement is waited for from now on: PostgreSQL keeps its own limit, and a silent server keeps none.

    The other drivers have such a limit themselves.
    """
    driver: Any = connection.connection.driver_connection
    if hasattr(driver, "deadline"):
        driver.deadline = per_statement
    return driver


def _connect_with_deadline(_dialect: object, _record: object, arguments: Any, named: Any) -> Any:
    return _connection_with_deadline().connect(*arguments, **named)


@cache
def _connection_with_deadline() -> Any:
    import psycopg  # noqa: PLC0415  (the driver is an extra)

    class ConnectionWithDeadline(psycopg.Connection[Any]):
        deadline: timedelta | None = None
        """Of each statement."""

        def wait(self, gen: Any, *waiting: Any, **how: Any) -> Any:
            if self.deadline is not None:
                gen = until(time.monotonic() + self.deadline.total_seconds(), gen)
            return super().wait(gen, *waiting, **how)

    def until(end: float, steps: Any) -> Generator[Any, Any, Any]:
        """The driver takes the next step when there is news, and ten times a second when there is none."""
        try:
            wanted = next(steps)
            while True:
                news = yield wanted
                wanted = steps.send(news)
                if time.monotonic() > end:
                    # Without a code of the server's, which makes it the loss of the connection that it is.
                    raise psycopg.OperationalError("the server did not answer in time")
        except StopIteration as last:
            return last.value

    return ConnectionWithDeadline
