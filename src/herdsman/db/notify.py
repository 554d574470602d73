"""How replicas tell each other that jobs were queued: PostgreSQL's LISTEN and NOTIFY. A hint, and never more.

The notification is sent after the commit and by itself, not in the transaction that queued the job: commits that notify
wait for each other, and one is enough for a thousand jobs. One that is lost costs what polling costs.
"""

import os
import select
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from threading import Thread

import structlog
from sqlalchemy.exc import SQLAlchemyError

from herdsman.db.connection import Database
from herdsman.db.engine import set_deadline
from herdsman.errors import HerdsmanError

log = structlog.get_logger()

CHANNEL = "herdsman_work"
_STATEMENT_DEADLINE = timedelta(seconds=10)
_RECONNECT_S = 1.0
_PROBE_S = 30.0
"""A connection that brings nothing may be dead: so often it is probed."""
# What a crash of the server takes with it was a hint: it need not wait for the disk. The setting is for this
# statement alone, since a pooler would hand it to others.
_NOTIFY = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{CHANNEL}', '')"


def open_wakeup(database: Database) -> "Wakeup | None":
    """None where the database has no such thing: there the others find the jobs by polling."""
    return Wakeup(database) if database.engine.dialect.name == "postgresql" else None


class Wakeup:
    """One connection and one thread. `ring` never waits for the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending = False
        self._stopping = False
        self._pipe_read, self._pipe_write = os.pipe()
        os.set_blocking(self._pipe_read, False)
        os.set_blocking(self._pipe_write, False)
        self._thread: Thread | None = None
        self.listening = False

    def start(self, on_wake: Callable[[], None]) -> None:
        """`on_wake` is called when another replica has queued jobs."""
        self._thread = Thread(target=self._run, args=(on_wake,), name="wakeup", daemon=True)
        self._thread.start()

    def ring(self) -> None:
        """Wake the other replicas soon; many calls at once are one notification."""
        if not self._pending:
            self._pending = True
            self._wake_thread()

    def stop(self) -> None:
        self._stopping = True
        self._wake_thread()
        if self._thread is not None:
            self._thread.join()
        os.close(self._pipe_read)
        os.close(self._pipe_write)

    def _wake_thread(self) -> None:
        with suppress(BlockingIOError):  # full: it is awake anyway
            os.write(self._pipe_write, b"!")

    def _run(self, on_wake: Callable[[], None]) -> None:
        driver_error: type[Exception] = self._database.engine.dialect.loaded_dbapi.Error
        while not self._stopping:
            try:
                self._listen(on_wake)
            except (SQLAlchemyError, HerdsmanError, driver_error) as error:
                log.warning("wakeup.broken", reason=type(error).__name__)
                select.select([self._pipe_read], [], [], _RECONNECT_S)
                with suppress(BlockingIOError):
                    os.read(self._pipe_read, 4096)

    def _listen(self, on_wake: Callable[[], None]) -> None:
        connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        # The driver's own connection is asked for first: one that has left the pool no longer shows it.
        driver = set_deadline(connection, _STATEMENT_DEADLINE)
        connection.detach()
        try:
            driver.execute(f"LISTEN {CHANNEL}")
            self.listening = True
            on_wake()  # for what was sent while nobody listened
            own_pid = driver.info.backend_pid
            while not self._stopping:
                readable, _, _ = select.select([driver.fileno(), self._pipe_read], [], [], _PROBE_S)
                if not readable:
                    driver.execute("SELECT 1")
                if self._pipe_read in readable:
                    os.read(self._pipe_read, 4096)
                if self._pending:
                    self._pending = False
                    driver.execute(_NOTIFY)
                pids = {each.pid for each in driver.notifies(timeout=0)}
                if pids - {own_pid}:
                    on_wake()
        finally:
            self.listening = False
            with suppress(SQLAlchemyError):
                connection.close()
