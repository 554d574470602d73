"""A second face of the jobs for people who work in SQL: the same rows as `tasks`, and functions that move them.

docs/reference/tasks.md explains them. SQLite has the view alone: it keeps no functions.
"""

from sqlalchemy import Connection, inspect, text

from herdsman.core.errors import StoreMisconfigured
from herdsman.store import task_face_mariadb, task_face_postgres
from herdsman.store.phrases import PHRASES
from herdsman.store.task_face_rows import VIEW, view_select
from herdsman.store.views import creation


def install(connection: Connection) -> None:
    """Put the view and the functions in place, in the version of this code. Harmless to repeat."""
    _refuse_a_table(connection)
    if "REPLACE" not in PHRASES[connection.dialect.name].create:
        drop(connection)
    connection.exec_driver_sql(f"{creation(connection, VIEW)} AS {view_select()}")
    match connection.dialect.name:
        case "postgresql":
            task_face_postgres.install(connection)
        case "mysql":
            task_face_mariadb.install(connection)
        case _:
            pass


def drop(connection: Connection) -> None:
    """Before tables change. The functions may stay: they look at the tables when they are called."""
    _refuse_a_table(connection)
    connection.exec_driver_sql(f"DROP VIEW IF EXISTS {VIEW}")


def missing(connection: Connection) -> list[str]:
    there = set(connection.scalars(text(PHRASES[connection.dialect.name].installed)))
    gone = [VIEW] if VIEW not in there else []
    match connection.dialect.name:
        case "postgresql":
            return [*gone, *task_face_postgres.missing(connection)]
        case "mysql":
            return [*gone, *task_face_mariadb.missing(connection)]
        case _:
            return gone


def _refuse_a_table(connection: Connection) -> None:
    """Somebody else's rows are in it."""
    if VIEW in inspect(connection).get_table_names():
        raise StoreMisconfigured(
            f"there is a table {VIEW!r} where Herdsman puts its view of that name: rename the table,"
            " or give Herdsman a schema or database of its own"
        )
