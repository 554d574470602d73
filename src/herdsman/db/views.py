"""Views for people and dashboards, from a file of SQL for each database. docs/reference/views.md explains them.

Their names and columns are public.
"""

import re
from pathlib import Path

from sqlalchemy import Connection, text

VIEWS = ("orchestrator_status", "active_workers_health", "worker_performance")

# MariaDB would else run a view with the rights of the user that made it, who may be gone by then.
_CREATE = {"mysql": "CREATE OR REPLACE SQL SECURITY INVOKER VIEW"}
_INSTALLED = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'view'",
    "mysql": "SELECT table_name FROM information_schema.views WHERE table_schema = DATABASE()",
    "postgresql": "SELECT viewname FROM pg_views WHERE schemaname = current_schema()",
}


def install(connection: Connection) -> None:
    """Put every view in place, in the version of this code. Harmless to repeat."""
    script = Path(__file__).with_suffix(f".{connection.dialect.name}.sql").read_text(encoding="utf-8")
    for view in re.finditer(r"^CREATE VIEW (\w+) AS\n(.*?);", script, re.MULTILINE | re.DOTALL):
        put(connection, view[1], view[2])


def put(connection: Connection, name: str, query: str) -> None:
    """With the rights of whoever asks, where PostgreSQL can: else a view would show what a policy hides."""
    dialect, version = connection.dialect.name, connection.dialect.server_version_info or ()
    if dialect not in _CREATE:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
    invoker = " WITH (security_invoker = true)" if dialect == "postgresql" and version >= (15,) else ""
    connection.exec_driver_sql(f"{_CREATE.get(dialect, 'CREATE VIEW')} {name}{invoker} AS {query}")


def drop(connection: Connection) -> None:
    """Before tables change: some databases let nobody touch a table that a view reads."""
    for name in VIEWS:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def missing(connection: Connection, names: tuple[str, ...] = VIEWS) -> list[str]:
    there = set(connection.scalars(text(_INSTALLED[connection.dialect.name])))
    return [name for name in names if name not in there]
