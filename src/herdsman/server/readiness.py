"""Can this process do its work? Asked of the database within a bounded time, and not by everybody at once."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from threading import Event, Lock

import structlog

from herdsman.access import sql as access_sql
from herdsman.db.checks import schema_fault
from herdsman.db.connection import Database
from herdsman.errors import HerdsmanError
from herdsman.wire import told_of

log = structlog.get_logger()

PATIENCE_S = 3.0
FRESH_S = 1.0
WRITE_PATIENCE_S = 0.5
"""Others may stand before us in the line of writers: until a write has failed, the last one counts."""
WRITE_FRESH_S = 5.0
SCHEMA_FRESH_S = 60.0
REFUSED_LATELY = timedelta(seconds=30)
FINE = "ok"


class _Question:
    """Asked once at a time: a database that hangs holds up one thread, however many want to know."""

    def __init__(self, ask: Callable[[], object], name: str, fresh_s: float) -> None:
        self._ask = ask
        self._name = name
        self._fresh_s = fresh_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"ready-{name}")
        self._lock = Lock()
        self._asked: Future[str] | None = None
        self._began = 0.0
        self._said = FINE

    def answer(self, patience_s: float) -> str | None:
        """`ok`, or what is wrong; None where nothing was said in time."""
        with self._lock:
            old = time.monotonic() - self._began > self._fresh_s
            if self._asked is None or (self._asked.done() and old):
                self._asked, self._began = self._thread.submit(self._answer), time.monotonic()
            asked = self._asked
        try:
            return asked.result(timeout=patience_s)
        except TimeoutError:
            return None

    @property
    def last(self) -> str:
        return self._said

    def _answer(self) -> str:
        try:
            said, why = str(self._ask() or FINE), ""
        except HerdsmanError as error:
            said, why = told_of(error), str(error)
        if said != self._said:
            log.warning("ready.changed", about=self._name, said=said, reason=why)
        self._said = said
        return said


class Readiness:
    def __init__(
        self, database: Database, stopping: Event, loop_faults: Callable[[], Mapping[str, str]] = dict[str, str]
    ) -> None:
        self._database = database
        self._stopping = stopping
        self._loop_faults = loop_faults
        self._read = _Question(self._look, "database", FRESH_S)
        self._write = _Question(lambda: database.transact(access_sql.touch_pepper), "writes", WRITE_FRESH_S)
        self._schema_good_until = 0.0

    def checks(self) -> Mapping[str, str]:
        """By name: `ok`, or what is wrong and what to do."""
        faults = "; ".join(f"{loop} {fault}" for loop, fault in self._loop_faults().items())
        loops = "the server stops" if self._stopping.is_set() else faults or FINE
        database = self._read.answer(PATIENCE_S) or f"the database did not answer within {PATIENCE_S:g} s"
        found = {"loops": loops, "database": database}
        return {**found, "writes": self._writes()} if database == FINE else found

    def _writes(self) -> str:
        """That it can be read says nothing: on a full disk everything that is there can be looked at."""
        if self._database.refused_a_write(REFUSED_LATELY):
            seconds = f"{REFUSED_LATELY.total_seconds():g} s"
            return f"the database refused a write within the last {seconds}: make room on its disk, see the log"
        return self._write.answer(WRITE_PATIENCE_S) or self._write.last

    def _look(self) -> str | None:
        self._database.read(lambda tx: tx.scalar("SELECT 1"))
        if time.monotonic() < self._schema_good_until:
            return None
        fault = schema_fault(self._database)
        if fault is None:
            self._schema_good_until = time.monotonic() + SCHEMA_FRESH_S
        return fault
