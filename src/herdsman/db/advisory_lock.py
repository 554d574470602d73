"""A lock that ends with its holder's session: it shows at once that a leader has died. The epoch alone decides.

Behind a pooler that hands out sessions by the transaction such a lock means nothing, and on Galera it does not
exist: there it switches itself off, and the leader's row is all there is.
"""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

import structlog
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from herdsman.db.connection import Database
from herdsman.db.engine import set_deadline
from herdsman.errors import HerdsmanError

log = structlog.get_logger()

PROBES = 3


@dataclass(frozen=True, slots=True)
class LockSql:
    """The statements of one kind of server."""

    offered: str
    """Whether such a lock exists here."""
    mark: str
    """Write something into the session that only its owner knows, and end the session when it falls silent."""
    marked: str
    take: str
    held: str
    """Whether this session has the lock; asked of the server, each time."""


POSTGRESQL = LockSql(
    offered="SELECT 1",
    # Before version 14 a silent session lives on: then only the row tells that its leader is gone.
    mark="SELECT set_config('herdsman.session', :mark, false), set_config(CASE"
    " WHEN current_setting('server_version_num')::int >= 140000 THEN 'idle_session_timeout' ELSE 'herdsman.idle'"
    " END, :idle_ms, false)",
    marked="SELECT current_setting('herdsman.session', true)",
    take="SELECT pg_try_advisory_lock(:key)",
    held="SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()"
    " AND objsubid = 1 AND (classid::bigint << 32) + objid::bigint = :key",
)
MARIADB = LockSql(
    offered="SELECT NOT @@wsrep_on",
    mark="SET @herdsman_session = :mark, SESSION wait_timeout = :idle_s",
    marked="SELECT @herdsman_session",
    take="SELECT GET_LOCK(:name, 0)",
    held="SELECT IS_USED_LOCK(:name) = CONNECTION_ID()",
)
STATEMENTS: Mapping[str, LockSql] = {"postgresql": POSTGRESQL, "mysql": MARIADB}


def open_session_lock(database: Database, name: str, *, idle: timedelta) -> "SessionLock | None":
    """None where the database has no sessions of its own. `idle` is how long a stopped holder keeps the lock."""
    sql = STATEMENTS.get(database.engine.dialect.name)
    return None if sql is None else SessionLock(database, sql, name, idle)


class SessionLock:
    """Held on a connection of its own. Not for several threads at once."""

    def __init__(self, database: Database, sql: LockSql, name: str, idle: timedelta) -> None:
        self._database = database
        self._sql = sql
        self._idle = idle
        self._mark = secrets.token_hex(8)
        seconds = max(1, round(idle.total_seconds()))
        key = int.from_bytes(sha256(name.encode()).digest()[:8]) >> 1
        self._values: Mapping[str, Any] = {
            "name": name,
            "key": key,
            "mark": self._mark,
            "idle_s": seconds,
            "idle_ms": str(1000 * seconds),
        }
        self._connection: Connection | None = None
        self.off = False
        """For good: such a lock means nothing here."""

    def take(self) -> bool:
        """Whether the lock is ours now, be it new or from before. To be asked again and again while it is needed."""
        if self.off:
            return False
        try:
            if self._connection is None:
                self._connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                # While the driver's own connection can still be reached.
                set_deadline(self._connection, self._idle)
                self._connection.detach()
                if not self._direct(self._connection):
                    return self._switch_off()
            elif self._ask(self._connection, self._sql.marked) != self._mark:
                return self._switch_off()
            held = self._ask(self._connection, self._sql.held) == 1
            return held or bool(self._ask(self._connection, self._sql.take))
        except (SQLAlchemyError, HerdsmanError) as error:
            log.warning("session_lock.broken", reason=type(error).__name__)
            self.release()
            return False

    def release(self) -> None:
        """The lock ends with its connection, whatever state that is in."""
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.close()
            self._connection = None

    def _direct(self, connection: Connection) -> bool:
        """Our mark is where we left it, and others do not see it, while they use their own connections."""
        if self._ask(connection, self._sql.offered) != 1:
            return False
        connection.execute(text(self._sql.mark), self._values).close()
        return all(
            self._database.read(lambda tx: tx.scalar(self._sql.marked)) != self._mark
            and self._ask(connection, self._sql.marked) == self._mark
            for _ in range(PROBES)
        )

    def _ask(self, connection: Connection, query: str) -> Any:
        return connection.execute(text(query), self._values).scalar_one()

    def _switch_off(self) -> bool:
        self.off = True
        self.release()
        log.warning("session_lock.off", reason="the server's sessions are shared or replicated; the row will do")
        return False
