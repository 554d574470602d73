"""Can this process do its work? Asked of the database within a bounded time, and not by everybody at once."""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Lock

from herdsman.core.errors import HerdsmanError
from herdsman.store.database import Database
from herdsman.store.revisions import schema_fault

PATIENCE_S = 3.0
FRESH_S = 1.0
SCHEMA_FRESH_S = 60.0
FINE = "ok"


class Readiness:
    """One look at a time: a database that hangs holds up one thread, however often it is asked for."""

    def __init__(self, database: Database, stopping: Event) -> None:
        self._database = database
        self._stopping = stopping
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ready")
        self._lock = Lock()
        self._look: Future[str] | None = None
        self._began = 0.0
        self._schema_good_until = 0.0

    def checks(self) -> Mapping[str, str]:
        """By name: `ok`, or what is wrong and what to do."""
        loops = "the server stops" if self._stopping.is_set() else FINE
        return {"loops": loops, "database": self._database_now()}

    def _database_now(self) -> str:
        with self._lock:
            old = time.monotonic() - self._began > FRESH_S
            if self._look is None or (self._look.done() and old):
                self._look, self._began = self._thread.submit(self._ask), time.monotonic()
            look = self._look
        try:
            return look.result(timeout=PATIENCE_S)
        except TimeoutError:
            return f"the database did not answer within {PATIENCE_S:g} s"

    def _ask(self) -> str:
        try:
            self._database.read(lambda tx: tx.scalar("SELECT 1"))
            return self._schema()
        except HerdsmanError as error:
            return str(error)

    def _schema(self) -> str:
        if time.monotonic() < self._schema_good_until:
            return FINE
        fault = schema_fault(self._database)
        if fault is None:
            self._schema_good_until = time.monotonic() + SCHEMA_FRESH_S
        return fault or FINE
