"""Guards in each database's own words, and how they get into it and are found there."""

from collections.abc import Iterable
from hashlib import sha256

from sqlalchemy import Connection, text

from herdsman.store.guards import Guard, Refuse, all_guards

PREFIX = "herdsman_"
MARK = "herdsman: "
"""How our refusals begin, so that they can be told from any other error of the database."""


_EDITION = 2
"""Raised when the words around the guards change, so that those of before are replaced."""


def install(connection: Connection) -> None:
    """Put every guard in place: new ones first, so that no moment is unguarded; then drop the stale."""
    wanted = {trigger_name(guard): guard for guard in all_guards()}
    there = installed(connection)
    for name, guard in wanted.items():
        if name not in there:
            _run(connection, _create(connection.dialect.name, name, guard))
    _run(connection, (_drop(connection.dialect.name, name) for name in there - wanted.keys()))


def missing(connection: Connection) -> list[str]:
    """The guards that should be here and are not, or are here in another version."""
    there = installed(connection)
    return [guard.name for guard in all_guards() if trigger_name(guard) not in there]


def trigger_name(guard: Guard) -> str:
    """The name carries a digest, so a guard that has changed is a guard that is missing."""
    return f"{PREFIX}{guard.name}_{sha256(f'{_EDITION}{guard!r}'.encode()).hexdigest()[:8]}"


def installed(connection: Connection) -> set[str]:
    """The names of our triggers that are there and switched on."""
    names = connection.scalars(text(_INSTALLED[connection.dialect.name]))
    return {name for name in names if name.startswith(PREFIX)}


_INSTALLED = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "mysql": "SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = DATABASE()",
    "postgresql": "SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
    " JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND n.nspname = current_schema()",
}


def _run(connection: Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.exec_driver_sql(statement)


def _create(dialect: str, name: str, guard: Guard) -> list[str]:
    wrap = {"sqlite": _sqlite, "mysql": _mariadb, "postgresql": _postgres}[dialect]
    return wrap(name, guard)


def _drop(dialect: str, name: str) -> str:
    return f"DROP FUNCTION {name}() CASCADE" if dialect == "postgresql" else f"DROP TRIGGER {name}"


def _timing(guard: Guard) -> str:
    return f"{'BEFORE' if isinstance(guard, Refuse) else 'AFTER'} {guard.event}"


def _sqlite(name: str, guard: Guard) -> list[str]:
    if isinstance(guard, Refuse):
        when = f"({guard.when}) AND NOT ({guard.unless})"
        body = f"SELECT RAISE(ABORT, '{MARK}{guard.message}')"
    else:
        when, body = guard.when, guard.statement
    head = f"CREATE TRIGGER {name} {_timing(guard)} ON {guard.table} FOR EACH ROW WHEN {when}"
    return [f"{head} BEGIN {body}; END"]


def _mariadb(name: str, guard: Guard) -> list[str]:
    if isinstance(guard, Refuse):
        when = f"({guard.when}) AND NOT ({guard.unless})"
        body = f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{MARK}{guard.message}'"
    else:
        when, body = guard.when, guard.statement
    head = f"CREATE OR REPLACE TRIGGER {name} {_timing(guard)} ON {guard.table} FOR EACH ROW"
    return [f"{head} IF {when} THEN {body}; END IF"]


def _postgres(name: str, guard: Guard) -> list[str]:
    if isinstance(guard, Refuse):
        refuse = f"RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = '{MARK}{guard.message}'"
        result = "OLD" if guard.event == "DELETE" else "NEW"
        body = f"IF NOT ({guard.unless}) THEN {refuse}; END IF; RETURN {result};"
    else:
        body = f"{guard.statement.replace('json_object(', 'jsonb_build_object(')}; RETURN NULL;"
    function = (
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql{_planned(guard)}"
        f" AS $$ BEGIN {body} END $$"
    )
    head = f"CREATE TRIGGER {name} {_timing(guard)} ON {guard.table} FOR EACH ROW WHEN ({guard.when})"
    return [function, f"{head} EXECUTE FUNCTION {name}()"]


def _planned(guard: Guard) -> str:
    """A session keeps the plan that it made while the table was empty: reading all of it, row after row, for ever."""
    updates = not isinstance(guard, Refuse) and guard.statement.startswith("UPDATE")
    return " SET enable_seqscan = off" if updates else ""
