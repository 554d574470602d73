"""What a driver's error means for us. Each database has its own numbers for the same few things."""

import re
import sqlite3
from enum import Enum, auto

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from herdsman.db.guards import MARK
from herdsman.errors import HerdsmanError, StoreMisconfigured, StoreUnavailable, StoreUnwritable


class Fault(Enum):
    CONTENDED = auto()
    """Another transaction was in the way; the same work may simply be done again."""
    DISCONNECTED = auto()
    DUPLICATE = auto()
    REFUSED = auto()
    """A constraint or a guard said no: a bug of the writer, or a person's SQL."""
    UNAVAILABLE = auto()
    UNWRITABLE = auto()
    """It can be read, but the disk is full or writing is forbidden."""
    MISCONFIGURED = auto()
    UNKNOWN = auto()


class Contended(HerdsmanError):
    """Never seen outside the store: the transaction is tried again."""


class Duplicate(HerdsmanError):
    """A unique key is taken; the caller looks who has it."""


class Refused(HerdsmanError):
    """The database kept a row from a change that the state tables forbid."""


_POSTGRES = {
    "40001": Fault.CONTENDED, "40P01": Fault.CONTENDED, "55P03": Fault.CONTENDED,
    "23505": Fault.DUPLICATE,
    "23000": Fault.REFUSED, "23502": Fault.REFUSED, "23503": Fault.REFUSED, "23514": Fault.REFUSED,
    "57P01": Fault.DISCONNECTED, "57P02": Fault.DISCONNECTED, "57P03": Fault.UNAVAILABLE,
    "25P03": Fault.DISCONNECTED, "57P05": Fault.DISCONNECTED,
    "57014": Fault.UNAVAILABLE, "25006": Fault.UNWRITABLE, "53100": Fault.UNWRITABLE,
    "53200": Fault.UNAVAILABLE, "53300": Fault.UNAVAILABLE, "53400": Fault.UNAVAILABLE,
    "28000": Fault.MISCONFIGURED, "28P01": Fault.MISCONFIGURED, "3D000": Fault.MISCONFIGURED,
    "42P01": Fault.MISCONFIGURED, "42703": Fault.MISCONFIGURED, "42501": Fault.MISCONFIGURED,
}  # fmt: skip

_MARIADB = {
    1213: Fault.CONTENDED, 1205: Fault.CONTENDED, 1020: Fault.CONTENDED,
    1062: Fault.DUPLICATE,
    1644: Fault.REFUSED, 4025: Fault.REFUSED, 1452: Fault.REFUSED, 1451: Fault.REFUSED, 1048: Fault.REFUSED,
    2006: Fault.DISCONNECTED, 2013: Fault.DISCONNECTED, 2014: Fault.DISCONNECTED, 2055: Fault.DISCONNECTED,
    1927: Fault.DISCONNECTED, 1053: Fault.DISCONNECTED, 0: Fault.DISCONNECTED,
    2002: Fault.UNAVAILABLE, 2003: Fault.UNAVAILABLE, 1040: Fault.UNAVAILABLE, 1969: Fault.UNAVAILABLE,
    1290: Fault.UNWRITABLE, 1792: Fault.UNWRITABLE, 1836: Fault.UNWRITABLE, 1021: Fault.UNWRITABLE,
    1114: Fault.UNWRITABLE, 3: Fault.UNWRITABLE,
    1044: Fault.MISCONFIGURED, 1045: Fault.MISCONFIGURED, 1049: Fault.MISCONFIGURED,
    1142: Fault.MISCONFIGURED, 1146: Fault.MISCONFIGURED, 1054: Fault.MISCONFIGURED, 1419: Fault.MISCONFIGURED,
}  # fmt: skip

_SQLITE = {
    sqlite3.SQLITE_BUSY: Fault.CONTENDED, sqlite3.SQLITE_LOCKED: Fault.CONTENDED,
    sqlite3.SQLITE_FULL: Fault.UNWRITABLE, sqlite3.SQLITE_IOERR: Fault.UNAVAILABLE,
    sqlite3.SQLITE_READONLY: Fault.UNWRITABLE, sqlite3.SQLITE_INTERRUPT: Fault.UNAVAILABLE,
    sqlite3.SQLITE_CANTOPEN: Fault.MISCONFIGURED, sqlite3.SQLITE_NOTADB: Fault.MISCONFIGURED,
    sqlite3.SQLITE_CORRUPT: Fault.MISCONFIGURED, sqlite3.SQLITE_ERROR: Fault.MISCONFIGURED,
    sqlite3.SQLITE_CONSTRAINT: Fault.REFUSED,
}  # fmt: skip

_SQLITE_DUPLICATE = {sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY}


def classify(error: Exception) -> Fault:
    if isinstance(error, PoolTimeout):
        return Fault.UNAVAILABLE
    original = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        if code is None:
            return Fault.UNKNOWN
        if code in _SQLITE_DUPLICATE:
            return Fault.DUPLICATE
        return _SQLITE.get(code & 0xFF, Fault.UNKNOWN)
    number = original.args[0] if original is not None and original.args else None
    if isinstance(number, int):
        return _MARIADB.get(number, Fault.UNKNOWN)
    state = getattr(original, "sqlstate", None)
    if isinstance(state, str):
        return _POSTGRES.get(state, Fault.DISCONNECTED if state.startswith("08") else Fault.UNKNOWN)
    # psycopg gives no state when the connection itself is gone.
    return Fault.DISCONNECTED if type(original).__name__ == "OperationalError" else Fault.UNKNOWN


def translate(error: Exception) -> HerdsmanError | None:
    """The error as one of ours; None when it is a bug that nobody should hide."""
    said = explain(error)
    match classify(error):
        case Fault.CONTENDED:
            return Contended(said)
        case Fault.DUPLICATE:
            return Duplicate(said)
        case Fault.REFUSED:
            return Refused(said)
        case Fault.DISCONNECTED | Fault.UNAVAILABLE:
            return StoreUnavailable(f"the database cannot be used right now: {said}")
        case Fault.UNWRITABLE:
            return StoreUnwritable(f"the database takes no writes now: {said}")
        case Fault.MISCONFIGURED:
            return StoreMisconfigured(f"the database cannot be used: {said}{next_step(error)}")
        case Fault.UNKNOWN:
            return None


def explain(error: Exception) -> str:
    """The first line of what the server said, without statement and parameters: those may hold secrets."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    said = str(original.args[-1]) if original.args else str(original)
    marked = re.search(re.escape(MARK) + r"[^\n]*", said)
    first = marked.group() if marked else said.strip().partition("\n")[0]
    return first or type(original).__name__


DAMAGED = (
    "stop everything that uses the file, keep a copy of it, and put the last backup in its place;"
    " docs/databases.md says how to save what can still be read"
)
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def next_step(error: Exception) -> str:
    """What a person can do about it, where we know."""
    original = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(original, sqlite3.Error) and getattr(original, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
        return f"; {DAMAGED}"
    tables_missing = ("no such table", "doesn't exist", "does not exist")
    return "; run herdsman db init" if any(words in explain(error) for words in tables_missing) else ""
