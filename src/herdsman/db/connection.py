"""Transactions: opened, their statements run, tried again when another one was in the way, and their errors made ours."""

import math
import random
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult, Dialect, Engine, Executable, Insert, SelectBase, Update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeDecorator

from herdsman import errors
from herdsman.db.engine import DEADLINE_SLACK, open_engines, parse_url, set_deadline, size_of
from herdsman.db.errors import Contended, Fault, classify, explain, next_step, translate
from herdsman.db.statements import MOST_LISTED, BulkWrite, PreparedStatement, Row, Statement, Writers
from herdsman.ports import Clock

T = TypeVar("T")

TRIES = 12
_FIRST_PAUSE = timedelta(milliseconds=4)
_LONGEST_PAUSE = timedelta(milliseconds=500)
LONGEST_REBUILDING = timedelta(seconds=60)
"""So long one that changes the schema waits for another that does."""


class Tx:
    """One open transaction."""

    def __init__(self, database: "Database", connection: Connection, *, writes: bool) -> None:
        self.connection = connection
        self.writes = writes
        self._database = database
        self._now: datetime | None = None
        # One for all statements: psycopg takes longer to open a cursor than to bind a statement.
        self._cursor: Any = connection.connection.cursor()

    @property
    def dialect(self) -> str:
        return self.connection.dialect.name

    def now(self) -> datetime:
        """The database's clock, read once: everything in one transaction happens at one instant."""
        if self._now is None:
            self._now = self._database.clock_of(self)
        return self._now

    def execute(
        self, statement: Executable, values: Mapping[str, Any] | Sequence[Mapping[str, Any]] = ()
    ) -> CursorResult[Any]:
        return self.connection.execute(statement, values or None)

    def run(self, hot: PreparedStatement, values: Mapping[str, Any], listed: Sequence[str] = ()) -> int:
        """How many rows the statement touched."""
        compiled = self._database.compiled(hot, listed)
        self._cursor.execute(compiled.sql, compiled.bind(values, listed))
        return int(self._cursor.rowcount)

    def run_many(self, hot: PreparedStatement, rows: Sequence[Mapping[str, Any]]) -> int:
        """The same for each of the rows; how many rows were touched in all."""
        compiled = self._database.compiled(hot)
        if len(rows) == 1:  # the usual case, and the driver's way for many is slower there
            self._cursor.execute(compiled.sql, compiled.bind(rows[0]))
        elif compiled.bulk is not None:
            self._cursor.execute(compiled.bulk.sql, compiled.bulk.bind(rows))
        else:
            self._cursor.executemany(compiled.sql, [compiled.bind(values) for values in rows])
        return int(self._cursor.rowcount)

    def rows(self, hot: PreparedStatement, values: Mapping[str, Any], listed: Sequence[str] = ()) -> list[Row]:
        compiled = self._database.compiled(hot, listed)
        self._cursor.execute(compiled.sql, compiled.bind(values, listed))
        return compiled.read(self._cursor.fetchall())

    def scalar(self, sql: str) -> Any:
        """The one value that a statement in the database's own words gives."""
        self._cursor.execute(sql)
        row = self._cursor.fetchone()
        assert row is not None
        return row[0]


class Compiled:
    """A statement as one database's driver takes it; `room` is how many entries its list has."""

    def __init__(self, hot: PreparedStatement, dialect: Dialect, room: int) -> None:
        self._listed = [f"listed_{index}" for index in range(room)]
        statement = hot.build(self._listed)
        compiled = statement.compile(dialect=dialect, column_keys=hot.columns)
        assert isinstance(compiled, SQLCompiler)
        self.sql = compiled.string
        names = compiled.positiontup
        assert names is not None, f"{dialect.name} must be opened with a positional parameter style"
        self._names = names
        self._fixed = {
            name: bind.value for name, bind in compiled.binds.items() if not bind.required and bind.value is not None
        }
        self._writers = _writers(compiled, dialect)
        self._readers = _readers(statement, dialect)
        self._bulk = dialect.name == "postgresql" and isinstance(statement, Insert | Update)

    def bind(self, values: Mapping[str, Any], listed: Sequence[str] = ()) -> list[Any]:
        """A list is filled up with its last entry."""
        given = {**self._fixed, **values}
        for index, name in enumerate(self._listed):
            given[name] = listed[min(index, len(listed) - 1)]
        for name, convert in self._writers:
            given[name] = convert(given[name])
        return [given[name] for name in self._names]

    @cached_property
    def bulk(self) -> BulkWrite | None:
        """The same for many rows at once; None where each is a statement of its own."""
        return BulkWrite(self.sql, self._names, self._fixed, self._writers) if self._bulk else None

    def read(self, rows: Iterable[Sequence[Any]]) -> list[Row]:
        if not self._readers:
            return [tuple(row) for row in rows]
        found: list[Row] = []
        for row in rows:
            values = list(row)
            for index, convert in self._readers:
                values[index] = convert(values[index])
            found.append(tuple(values))
        return found


def _writers(compiled: SQLCompiler, dialect: Dialect) -> Writers:
    """Only our own types convert anything; the drivers take and give the plain ones as they are."""
    ours = [(name, bind.type) for name, bind in compiled.binds.items() if isinstance(bind.type, TypeDecorator)]
    found = [(name, kind.dialect_impl(dialect).bind_processor(dialect)) for name, kind in ours]
    return [(name, convert) for name, convert in found if convert is not None]


def _readers(statement: Statement, dialect: Dialect) -> list[tuple[int, Callable[[Any], Any]]]:
    if not isinstance(statement, SelectBase):
        return []
    kinds = [(index, column.type) for index, column in enumerate(statement.selected_columns)]
    ours = [(index, kind.dialect_impl(dialect)) for index, kind in kinds if isinstance(kind, TypeDecorator)]
    found = [(index, kind.result_processor(dialect, None)) for index, kind in ours]
    return [(index, convert) for index, convert in found if convert is not None]


class Database:
    """The one truth. Reads and writes are functions of a transaction and may be run more than once."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        timeout: timedelta = timedelta(seconds=10),
        pool_size: int = 10,
        prepare: bool = True,
        clock_of: Callable[[Tx], datetime] | None = None,
        chance: Callable[[], float] = random.random,
        read_url: Callable[[], str] | None = None,
    ) -> None:
        """`read_url` says where the database is now, and how we get in; asked when we no longer do."""
        login: dict[str, Any] = {}
        engines = open_engines(url, timeout=timeout, pool_size=pool_size, login=login, prepare=prepare)
        self.engine = engines.writing
        self._reading = engines.reading
        self._semaphores = {engine: FairSemaphore(size_of(engine)) for engine in {engines.writing, engines.reading}}
        self._clock = clock
        self._timeout = timeout
        self._chance = chance
        self._read_url = read_url
        self._login = login
        """What has changed in the URL since the start."""
        self._compiled: dict[tuple[PreparedStatement, int], Compiled] = {}
        self._unwritable_at = -math.inf
        self.in_service = False
        """It has been usable, and others depend on us: what is wrong with it from now on is waited out."""
        self.clock_of = clock_of or self.read_clock
        driver = self.engine.dialect.loaded_dbapi
        self._driver_errors: tuple[type[Exception], ...] = (SQLAlchemyError, driver.Error)

    @property
    def backend(self) -> str:
        return {"mysql": "MariaDB", "postgresql": "PostgreSQL", "sqlite": "SQLite"}[self.engine.dialect.name]

    def transact(self, work: Callable[[Tx], T]) -> T:
        """Run `work` and commit; when another transaction was in the way, do all of it again."""
        return self._transact(self.engine, work, writes=True)

    def refused_a_write(self, within: timedelta) -> bool:
        """Whether it did lately, if only a large one: a small write may still find room on a full disk."""
        return self._clock.monotonic() - self._unwritable_at < within.total_seconds()

    def read(self, work: Callable[[Tx], T]) -> T:
        return self._transact(self._reading, work, writes=False)

    def compiled(self, hot: PreparedStatement, listed: Sequence[str] = ()) -> Compiled:
        """Room for the list is a power of two, so that few lengths of one statement exist."""
        assert len(listed) <= MOST_LISTED, f"{len(listed)} entries in one list"
        room = 1 << (len(listed) - 1).bit_length() if listed else 0
        if (hot, room) not in self._compiled:
            self._compiled[hot, room] = Compiled(hot, self.engine.dialect, room)
        return self._compiled[hot, room]

    @contextmanager
    def alone(self, *, rebuilding: bool = False) -> Generator[Connection]:
        """A plain connection in one open transaction, for work that is done once and not again.

        `rebuilding` lets SQLite put a new table in the place of one that others refer to, and wait for who does the same.
        """
        try:
            with (
                self._connected(self.engine) as connection,
                _unreferred(connection, rebuilding=rebuilding),
                self._translated(self.engine, connection),
            ):
                connection.begin()
                yield connection
                if connection.in_transaction():
                    connection.rollback()
        except Contended as error:
            raise errors.StoreUnavailable(f"another transaction was in the way, try again: {error}") from error

    def read_clock(self, tx: Tx) -> datetime:
        """SQLite has no clock but that of its machine; the others are asked."""
        match self.engine.dialect.name:
            case "sqlite":
                return datetime.now(UTC)
            case "mysql":
                return tx.scalar("SELECT UTC_TIMESTAMP(6)").replace(tzinfo=UTC)
            case _:
                # All are set for this transaction alone: a pooler would leak a session's setting. The second limit is
                # for ourselves: who is stopped in the middle must not keep its locks for ever.
                limit = round(self._timeout.total_seconds() * 1000)
                given = {"statement_timeout": limit, "idle_in_transaction_session_timeout": limit}
                if tx.writes:
                    # A session keeps the plans that it made while a table was empty, also those of the checks of
                    # references: reading all of it, for each row. What writes finds its rows by an index.
                    given |= {"enable_seqscan": "off", "jit": "off"}
                settings = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in given.items())
                asked = f"SELECT clock_timestamp(), {settings}"
                return tx.scalar(asked).astimezone(UTC)

    def close(self) -> None:
        self.engine.dispose()
        self._reading.dispose()

    def _transact(self, engine: Engine, work: Callable[[Tx], T], *, writes: bool) -> T:
        patience = self._clock.monotonic() + self._timeout.total_seconds()
        said, attempt = "", 0
        while attempt < TRIES and self._clock.monotonic() <= patience:
            try:
                with self._connected(engine, self._timeout + DEADLINE_SLACK) as connection:
                    with self._translated(engine, connection):
                        connection.begin()
                        tx = Tx(self, connection, writes=writes)
                        tx.now()  # first of all: on PostgreSQL it sets the limit for every statement that follows
                        result = work(tx)
                    try:
                        connection.commit()
                    except self._driver_errors as error:
                        connection.invalidate()
                        if classify(error) is Fault.DISCONNECTED:
                            engine.dispose(close=False)
                            raise errors.OutcomeUnknown(
                                "the connection broke during COMMIT, so the change may or may not be stored:"
                                f" {explain(error)}"
                            ) from error
                        raise self._translate(error) or error from error
                    return result
            except Contended as error:
                said = str(error)
                self._clock.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt) * (0.5 + self._chance()))
                attempt += 1
            except errors.StoreUnwritable:
                self._unwritable_at = self._clock.monotonic()
                raise
        raise errors.StoreUnavailable(f"the database was too busy, {attempt} tries in a row failed: {said}")

    @contextmanager
    def _connected(self, engine: Engine, deadline: timedelta | None = None) -> Generator[Connection]:
        """`deadline` is that of each statement."""
        semaphore, seconds = self._semaphores[engine], self._timeout.total_seconds()
        if not semaphore.acquire(seconds):
            only = self.backend == "SQLite" and engine is self.engine
            most = "SQLite has one that writes" if only else "SQL_POOL_SIZE sets how many there are"
            raise errors.StoreUnavailable(
                f"no connection to {self.backend} became free for {seconds:g} s, {size_of(engine)} in use: {most}"
            )
        try:
            try:
                connection = engine.connect()
            except self._driver_errors as error:
                raise self.cannot_connect(error) from error
            with connection:
                set_deadline(connection, deadline)
                yield connection
        finally:
            semaphore.release()

    @contextmanager
    def _translated(self, engine: Engine, connection: Connection) -> Generator[None]:
        """Undo, then say what went wrong. A connection that broke takes the pool's other old ones with it."""
        try:
            yield
        except self._driver_errors as error:
            if classify(error) is Fault.DISCONNECTED:
                connection.invalidate()
                engine.dispose(close=False)
                raise Contended(explain(error)) from error
            self._undo(connection)
            raise self._translate(error) or error from error
        except BaseException:
            self._undo(connection)
            raise

    def _undo(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except self._driver_errors:
            connection.invalidate()

    def _translate(self, error: Exception) -> errors.HerdsmanError | None:
        found = translate(error)
        waits = self.in_service and isinstance(found, errors.StoreMisconfigured)
        return errors.StoreUnavailable(str(found)) if waits else found

    def cannot_connect(self, error: Exception) -> errors.HerdsmanError:
        where = self.engine.url.render_as_string(hide_password=True)
        said = explain(error)
        refused = any(words in said for words in _NOT_LET_IN)
        if refused or classify(error) is Fault.MISCONFIGURED:
            if self.in_service and self._read_url is not None:
                # What cannot be read changes nothing: it may be in the middle of being written.
                with suppress(errors.InvalidSettings, errors.StoreMisconfigured):
                    url = parse_url(self._read_url())
                    if url.get_backend_name() == self.engine.dialect.name:
                        self._login.update(self.engine.dialect.create_connect_args(url)[1])
            kind = errors.StoreUnavailable if self.in_service else errors.StoreMisconfigured
            return kind(f"{self.backend} at {where} does not let us in: {said}{next_step(error)}")
        return errors.StoreUnavailable(f"{self.backend} at {where} cannot be reached: {said}")


@contextmanager
def _unreferred(connection: Connection, *, rebuilding: bool) -> Generator[None]:
    """References are not enforced meanwhile; SQLite takes these words only outside of a transaction."""
    if not rebuilding or connection.dialect.name != "sqlite":
        yield
        return
    cursor: Any = connection.connection.cursor()
    (usual,) = cursor.execute("PRAGMA busy_timeout").fetchone()
    cursor.execute(f"PRAGMA busy_timeout = {round(LONGEST_REBUILDING.total_seconds() * 1000)}")
    cursor.execute("PRAGMA foreign_keys = OFF")
    try:
        yield
    finally:
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute(f"PRAGMA busy_timeout = {usual}")


# psycopg gives no error code when a connection is refused at login.
_NOT_LET_IN = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")


class FairSemaphore:
    """Waiters are served in the order in which they came: the pool of connections lets a newcomer overtake, for ever."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiters: deque[threading.Event] = deque()
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def acquire(self, timeout: float) -> bool:
        """False when no place became free in time."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Event()
            self._waiters.append(turn)
        acquired = False
        try:
            acquired = turn.wait(timeout) or not self._withdrawn(turn)
            return acquired
        finally:
            # After Ctrl-C: the place must not be kept for a waiter that is gone.
            if not acquired and not self._withdrawn(turn):
                self.release()

    def release(self) -> None:
        """The place goes to the first waiter; it is free only when nobody waits."""
        with self._lock:
            if self._waiters:
                self._waiters.popleft().set()
            else:
                self._free += 1

    def _withdrawn(self, turn: threading.Event) -> bool:
        """False when the turn came at the last moment."""
        with self._lock:
            if turn in self._waiters:
                self._waiters.remove(turn)
            return not turn.is_set()


Record = dict[str, Any]


def records(tx: Tx, query: Executable) -> list[Record]:
    return [{str(name): value for name, value in row.items()} for row in tx.execute(query).mappings()]


def record(tx: Tx, query: Executable) -> Record | None:
    """The only row, or None; a query that finds two is a bug."""
    found = tx.execute(query).mappings().one_or_none()
    return None if found is None else {str(name): value for name, value in found.items()}


def values(tx: Tx, query: Executable) -> list[Any]:
    """The first column."""
    return [row[0] for row in tx.execute(query)]
