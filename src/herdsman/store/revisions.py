"""Which schema a database has, and whether it is ours. Every command asks, so it does without Alembic, which takes a
while to load."""

import re
from functools import cache
from importlib.resources import files

from sqlalchemy import Connection, inspect, text

from herdsman.core.errors import StoreMisconfigured
from herdsman.store import tasks_sql, triggers, views
from herdsman.store.database import Database
from herdsman.store.server import inspect_server

_SCRIPT = re.compile(r"v(\d{4})_\w+\.py")
"""Migrations stand in a row, and are named by their number."""


def require_current(database: Database) -> None:
    """What every program does at its start: refuse to work on a schema that it does not know."""
    inspect_server(database)
    fault = schema_fault(database)
    if fault is not None:
        raise StoreMisconfigured(fault)


def schema_fault(database: Database) -> str | None:
    """What keeps us from working on this schema, and what to do about it."""
    with database.alone() as connection:
        found = current(connection)
        if found is None:
            return "the database has no Herdsman tables yet: run herdsman db init"
        if found not in known():
            return unknown(found)
        if found != latest():
            return f"the database has schema {found}, we need {latest()}: run herdsman db upgrade"
        parts = {"guards": triggers, "views": views, "tasks SQL:": tasks_sql}
        for what, part in parts.items():
            if gone := part.missing(connection):
                return f"the database lacks the {what} {', '.join(gone)}: run herdsman db upgrade"
        return None


RETIRED = frozenset(f"{number:04}" for number in range(1, 9))
"""Revisions from before the first release, whose migrations are gone."""


def unknown(found: str) -> str:
    """What a revision that we have no migration for means, and what to do."""
    if found in RETIRED:
        return (
            f"the database has schema {found}, from before the first release, which cannot be upgraded"
            " (its jobs are still readable with the version that made it)"
            ": point DATABASE_URL at an empty database and run herdsman db init"
        )
    return f"the database has schema {found}, which is newer than this version of Herdsman: upgrade Herdsman"


def current(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def latest() -> str:
    return max(known())


@cache
def known() -> frozenset[str]:
    names = (each.name for each in files("herdsman.store.migrations.versions").iterdir())
    return frozenset(found[1] for found in map(_SCRIPT.fullmatch, names) if found)
