"""Views for people and dashboards, from files of SQL. docs/reference/views.md explains them.

Their names and columns are public. views.sql holds those that are the same on every database.
"""

import re
from pathlib import Path

from sqlalchemy import Connection, text

RECORDS = ("orchestrator_jobs", "job_attempts", "orchestrator_audit")
"""What jobs and the audit are read by; others read these."""
VIEWS = (*RECORDS, "orchestrator_status", "active_workers_health", "worker_performance")

# MariaDB would else run a view with the rights of the user that made it, who may be gone by then.
_CREATE = {"mysql": "CREATE OR REPLACE SQL SECURITY INVOKER VIEW"}
_INSTALLED = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'view'",
    "mysql": "SELECT table_name FROM information_schema.views WHERE table_schema = DATABASE()",
    "postgresql": "SELECT viewname FROM pg_views WHERE schemaname = current_schema()",
}


def install(connection: Connection) -> None:
    """Put every view in place, in the version of this code. Harmless to repeat."""
    dialect = connection.dialect.name
    words = _WORDS[dialect]
    for suffix in (".sql", f".{dialect}.sql"):
        script = Path(__file__).with_suffix(suffix).read_text(encoding="utf-8")
        for word, theirs in words.items():
            script = script.replace(word, theirs)
        for view in re.finditer(r"^CREATE VIEW (\w+) AS\n(.*?);", script, re.MULTILINE | re.DOTALL):
            put(connection, view[1], view[2])


_WORDS = {
    "sqlite": {"{event}": "a.kind || '.' || a.status", "{bytes}": ""},
    "mysql": {"{event}": "CONCAT(a.kind, '.', a.status)", "{bytes}": " COLLATE utf8mb4_bin"},
    "postgresql": {"{event}": "CONCAT(a.kind, '.', a.status)", "{bytes}": "", "json_object(": "jsonb_build_object("},
}


def put(connection: Connection, name: str, query: str) -> None:
    """With the rights of whoever asks, where PostgreSQL can: else a view would show what a policy hides."""
    dialect, version = connection.dialect.name, connection.dialect.server_version_info or ()
    # One that others read cannot be dropped on PostgreSQL, and changes only with a migration, which drops them all.
    create = _CREATE.get(dialect, "CREATE OR REPLACE VIEW" if dialect == "postgresql" and name in RECORDS else None)
    if create is None:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
    invoker = " WITH (security_invoker = true)" if dialect == "postgresql" and version >= (15,) else ""
    connection.exec_driver_sql(f"{create or 'CREATE VIEW'} {name}{invoker} AS {query}")


def drop(connection: Connection) -> None:
    """Before tables change: some databases let nobody touch a table that a view reads."""
    for name in reversed(VIEWS):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def missing(connection: Connection, names: tuple[str, ...] = VIEWS) -> list[str]:
    there = set(connection.scalars(text(_INSTALLED[connection.dialect.name])))
    return [name for name in names if name not in there]
