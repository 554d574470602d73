"""The SQL API of the jobs: the view `tasks`, and functions that claim and end tasks. docs/reference/tasks.md explains it.

Each database has a file of SQL here; this module puts it in place. SQLite has the view alone: it keeps no functions.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import OperationalError

from herdsman.db import views
from herdsman.db.schema import metadata
from herdsman.errors import StoreMisconfigured

VIEW = "tasks"
ROW_TYPE = "task_row"

WORKER_FUNCTIONS = (
    "func_claim_available_task",
    "claim_task",
    "func_update_worker_heartbeat",
    "mark_task_complete",
    "func_mark_task_complete",
    "mark_task_failed",
    "func_mark_task_failed",
)
"""What a worker may call; the others are for people and for the control plane."""

PUBLIC = (*WORKER_FUNCTIONS, "func_reset_orphaned_tasks", "func_get_tasks_by_status")

_FILES = {"sqlite": "sqlite.sql", "postgresql": "postgresql.sql", "mysql": "mariadb.sql"}
_EXACT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
_TYPES = {"{name}": f"varchar(255) {_EXACT}", "{text}": f"longtext {_EXACT}"}
_VIEW = re.compile(rf"^CREATE VIEW {VIEW} AS SELECT (?P<columns>.*?) FROM orchestrator_jobs j;", re.MULTILINE)
_TYPE = re.compile(rf"^CREATE TYPE {ROW_TYPE} AS \( (?P<columns>.*?) \);", re.MULTILINE)
_ROUTINE = re.compile(
    r"^CREATE (?P<kind>FUNCTION|PROCEDURE) (?P<name>\w+)(?P<head>\(.*?) AS \$\$ (?P<body>.*?) \$\$;", re.MULTILINE
)
_MARK = "herdsman "
"""How the comment of a routine begins, so that ours can be told from one of the same name."""
_DENIED = (1044, 1370)


@dataclass(frozen=True, slots=True, kw_only=True)
class Routine:
    name: str
    kind: str
    """FUNCTION or PROCEDURE."""
    head: str
    """Parameters and result: a routine whose head has changed is created anew, not replaced."""
    body: str

    @property
    def comment(self) -> str:
        return f"{self.comment_of_head} {_digest(self.body)}"

    @property
    def comment_of_head(self) -> str:
        return f"{_MARK}{_digest(self.kind + self.head)}"


@dataclass(frozen=True, slots=True)
class Script:
    """One of the files, read."""

    columns: str
    """What the view selects."""
    row_type: str
    """The columns of the type that PostgreSQL's functions return."""
    routines: tuple[Routine, ...]
    """Inner ones first."""

    @property
    def inner(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.routines if each.name not in PUBLIC)


@cache
def script(dialect: str) -> Script:
    sql = re.sub(r"^ *--.*\n", "", _read(_FILES[dialect]), flags=re.MULTILINE)
    # Each statement becomes one line, so that no database shows it differently from what it was given.
    sql = "\n".join(" ".join(part.split()) for part in re.split(r"\n\n(?=CREATE )", sql))
    view, row_type = _VIEW.search(sql), _TYPE.search(sql)
    assert view is not None, f"{_FILES[dialect]} has no view"
    for short, long in {"{task}": view["columns"], **_TYPES}.items():
        sql = sql.replace(short, long)
    routines = tuple(Routine(**found.groupdict()) for found in _ROUTINE.finditer(sql))
    assert len(routines) == sql.count("$$;"), f"{_FILES[dialect]} has a routine that cannot be read"
    return Script(view["columns"], row_type["columns"] if row_type else "", routines)


def _read(name: str) -> str:
    return (files("herdsman.db.tasks_sql") / name).read_text(encoding="utf-8")


def _digest(said: str) -> str:
    return sha256(said.encode()).hexdigest()[:12]


def install(connection: Connection) -> None:
    """Put the view and the functions in place, in the version of this code. Harmless to repeat."""
    _refuse_a_table(connection)
    dialect = connection.dialect.name
    wanted = script(dialect)
    views.put(connection, VIEW, f"SELECT {wanted.columns} FROM orchestrator_jobs j")
    if dialect == "postgresql":
        _install_row_type(connection, wanted.row_type)
    there, ours = installed(connection), {routine.name for routine in wanted.routines}
    for name, (kind, comment) in there.items():
        if name not in ours and comment.startswith(_MARK):
            connection.exec_driver_sql(f"DROP {kind} {name}")
    for routine in wanted.routines:
        kind, comment = there.get(routine.name, (routine.kind, None))
        if comment is not None and not comment.startswith(_MARK):
            place = "schema" if dialect == "postgresql" else "database"
            raise StoreMisconfigured(
                f"the {place} has a {kind.lower()} {routine.name} that is not ours: drop it, or give Herdsman"
                f" a {place} of its own"
            )
        if comment != routine.comment:
            (_put_postgresql if dialect == "postgresql" else _put_mariadb)(connection, routine, comment)


def drop(connection: Connection) -> None:
    """Before tables change. The functions may stay: they look at the tables when they are called."""
    _refuse_a_table(connection)
    connection.exec_driver_sql(f"DROP VIEW IF EXISTS {VIEW}")


def missing(connection: Connection) -> list[str]:
    """What should be here and is not, or is here in another version."""
    gone, there = views.missing(connection, (VIEW,)), installed(connection)
    for routine in script(connection.dialect.name).routines:
        if routine.name in there:
            stale = there[routine.name] != (routine.kind, routine.comment)
        else:  # MariaDB shows a user only the routines that it may run: what is not seen may well be there
            stale = connection.dialect.name != "mysql"
        if stale:
            gone.append(routine.name)
    return gone


def _refuse_a_table(connection: Connection) -> None:
    """Somebody else's rows are in it."""
    if VIEW in inspect(connection).get_table_names():
        raise StoreMisconfigured(
            f"there is a table {VIEW!r} where Herdsman puts its view of that name: rename the table,"
            " or give Herdsman a schema or database of its own"
        )


def installed(connection: Connection) -> Mapping[str, tuple[str, str]]:
    """The routines of this schema or database, with their kinds and comments."""
    query = _INSTALLED.get(connection.dialect.name)
    if query is None:
        return {}
    return {name: (kind, comment) for name, kind, comment in connection.execute(text(query))}


_INSTALLED = {
    "postgresql": "SELECT p.proname, 'FUNCTION', COALESCE(obj_description(p.oid, 'pg_proc'), '') FROM pg_proc p"
    " JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = current_schema()",
    "mysql": "SELECT routine_name, routine_type, routine_comment FROM information_schema.routines"
    " WHERE routine_schema = DATABASE()",
}


def _install_row_type(connection: Connection, columns: str) -> None:
    shape = text(
        "SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, NULL), ', ' ORDER BY a.attnum)"
        " FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid JOIN pg_namespace n ON"
        " n.oid = t.typnamespace WHERE t.typname = :name AND n.nspname = current_schema()"
    )
    if connection.scalar(shape, {"name": ROW_TYPE}) != columns:
        connection.exec_driver_sql(f"DROP TYPE IF EXISTS {ROW_TYPE} CASCADE")
        connection.exec_driver_sql(f"CREATE TYPE {ROW_TYPE} AS ({columns})")


def _put_postgresql(connection: Connection, routine: Routine, there: str | None) -> None:
    """One that is replaced keeps the rights that were given on it; a new one is its owner's alone."""
    if there is not None and not there.startswith(routine.comment_of_head):
        connection.exec_driver_sql(f"DROP FUNCTION {routine.name}")
        there = None
    schema = connection.scalar(text("SELECT quote_ident(current_schema())"))
    assert isinstance(schema, str), "the search path leads to no schema"
    connection.exec_driver_sql(
        f"CREATE OR REPLACE FUNCTION {routine.name}{routine.head} LANGUAGE plpgsql"
        f" SECURITY DEFINER SET search_path = {schema}, pg_temp AS $face${routine.body}$face$"
    )
    connection.exec_driver_sql(f"COMMENT ON FUNCTION {routine.name} IS '{routine.comment}'")
    if there is not None:
        return
    connection.exec_driver_sql(f"REVOKE ALL ON FUNCTION {routine.name} FROM PUBLIC")
    given = text(  # whatever the defaults of this database give away
        "SELECT DISTINCT quote_ident(r.rolname) FROM pg_proc p, aclexplode(p.proacl) a, pg_roles r"
        " WHERE p.oid = CAST(:name AS regproc) AND r.oid = a.grantee AND r.oid <> p.proowner"
    )
    for role in connection.scalars(given, {"name": routine.name}).all():
        connection.exec_driver_sql(f"REVOKE ALL ON FUNCTION {routine.name} FROM {role}")


def _put_mariadb(connection: Connection, routine: Routine, _there: str | None) -> None:
    words = f"CREATE OR REPLACE {routine.kind} {routine.name}{routine.head} MODIFIES SQL DATA SQL SECURITY DEFINER"
    try:
        connection.exec_driver_sql(f"{words} COMMENT '{routine.comment}' {routine.body}")
    except OperationalError as error:
        if error.orig is None or error.orig.args[0] not in _DENIED:
            raise
        raise StoreMisconfigured(
            f"this user may not create the function {routine.name} of the view {VIEW}: grant it CREATE ROUTINE and"
            " ALTER ROUTINE on the database, then run herdsman db upgrade"
        ) from error


def supabase_sql(schema: str, *, roles: Sequence[str] = ()) -> str:
    """SQL that closes the tables on Supabase and leaves workers their functions.

    `roles` are those that the control plane logs in with, beside the owner.
    """
    place = _quoted(schema)
    keys = ((table.name, table.autoincrement_column) for table in metadata.tables.values())
    growing = sorted(f"{table}_{key.name}_seq" for table, key in keys if key is not None and key.autoincrement is True)

    def here(names: Iterable[str]) -> list[str]:
        return [f"{place}.{_quoted(name)}" for name in names]

    tables, shown = here([*sorted(metadata.tables), "alembic_version"]), here([*views.VIEWS, VIEW])
    functions = here([*script("postgresql").inner, *PUBLIC])
    words = {
        "schema": place,
        "each_table": ", ".join(map(_literal, tables)),
        "each_view": ", ".join(map(_literal, shown)),
        "control": _literal(", ".join(["CURRENT_USER", *map(_quoted, roles)])),
        "relations": _literal(", ".join([*tables, *shown])),
        "sequences": _literal(", ".join(here(growing))),
        "functions": _literal(", ".join(functions)),
        "worker_functions": ", ".join(here(WORKER_FUNCTIONS)),
        "public_functions": ", ".join(here(PUBLIC)),
    }
    return re.sub(r"\{(\w+)\}", lambda found: words[found[1]], _read("supabase.sql"))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
