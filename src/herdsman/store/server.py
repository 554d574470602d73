"""Can we run on this server? Versions that are too old are refused, dangerous settings are named."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, text

from herdsman.core.errors import StoreMisconfigured
from herdsman.store.database import Database

OLDEST = {"SQLite": (3, 35, 0), "PostgreSQL": (13,), "MariaDB": (10, 6)}
# Earlier versions can lose a committed write when WAL checkpoints and restarts race.
SAFE_SQLITE = (3, 51, 3)

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Server:
    product: str
    version: Version
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.product} {_dotted(self.version)}"


def inspect_server(database: Database) -> Server:
    """The server behind the URL; `StoreMisconfigured` when we cannot run on it."""
    with database.alone() as connection:
        return inspect_behind(connection, database.backend)


def inspect_behind(connection: Connection, product: str) -> Server:
    match connection.dialect.name:
        case "sqlite":
            version, warnings = _version(connection, "SELECT sqlite_version()"), _sqlite(connection)
        case "postgresql":
            version, warnings = _version(connection, "SHOW server_version"), _postgres(connection)
        case _:
            _require_mariadb(connection)
            version, warnings = _version(connection, "SELECT VERSION()"), _mariadb(connection)
    require_version(product, version)
    return Server(product, version, tuple(warnings))


def require_version(product: str, version: Version) -> None:
    oldest = OLDEST[product]
    if version < oldest:
        raise StoreMisconfigured(
            f"{product} {_dotted(version)} is too old: Herdsman needs {product} {_dotted(oldest)} or newer"
        )


def parse_version(said: str) -> Version:
    """`10.11.6-MariaDB-0+deb12u1` and `15.18 (Debian 15.18-0)` alike."""
    # Old MariaDB servers put 5.5.5- in front, for clients that cannot read two digits.
    found = re.search(r"\d+(\.\d+)*", said.removeprefix("5.5.5-"))
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _version(connection: Connection, asked: str) -> Version:
    return parse_version(str(connection.execute(text(asked)).scalar_one()))


def _dotted(version: Version) -> str:
    return ".".join(str(part) for part in version)


def _sqlite(connection: Connection) -> Iterator[str]:
    version = _version(connection, "SELECT sqlite_version()")
    if version < SAFE_SQLITE:
        yield f"SQLite {_dotted(version)} is older than {_dotted(SAFE_SQLITE)}, which repairs a rare loss of WAL data"
    mode = connection.execute(text("PRAGMA journal_mode")).scalar_one()
    if mode not in ("wal", "memory"):
        yield f"SQLite's journal_mode is {mode}, not wal: is the file on a network drive?"


def _postgres(connection: Connection) -> Iterator[str]:
    if connection.execute(text("SELECT pg_is_in_recovery()")).scalar_one():
        raise StoreMisconfigured("this PostgreSQL server is a standby: point DATABASE_URL at the primary")
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        if connection.execute(text(f"SHOW {setting}")).scalar_one() == "off":
            yield f"PostgreSQL's {setting} is off: a crash of the server can lose jobs that were accepted"


def _require_mariadb(connection: Connection) -> None:
    said = str(connection.execute(text("SELECT VERSION()")).scalar_one())
    if "MariaDB" not in said:
        oldest = _dotted(OLDEST["MariaDB"])
        raise StoreMisconfigured(f"this server is MySQL {said}: Herdsman needs MariaDB {oldest} or newer")


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
