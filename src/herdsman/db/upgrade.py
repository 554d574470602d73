"""Bring a database to the schema of this version."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from herdsman.db import guards, tasks_sql, views
from herdsman.db.checks import current, inspect_behind, known, latest, unknown
from herdsman.db.connection import LONGEST_REBUILDING, Database
from herdsman.errors import StoreMisconfigured, StoreUnavailable

LOCK = "herdsman_upgrade"
# Any number will do, as long as every version of Herdsman uses the same.
_LOCK_NUMBER = 0x6865726473
_LONGEST_STATEMENT_S = 3600


def upgrade(database: Database) -> str:
    """Migrate and put guards, views and the tasks SQL in place; harmless to repeat, and safe when two do it at once."""
    with database.alone(rebuilding=True) as connection:
        inspect_behind(connection, database.backend)
        _lift_limits(connection)
        with _locked(connection):
            found = current(connection)
            if found is not None and found not in known():
                raise StoreMisconfigured(unknown(found))
            if found != latest():
                tasks_sql.drop(connection)
                views.drop(connection)
            config = alembic_config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            # SQLite did not check references while tables were replaced.
            if connection.dialect.name == "sqlite":
                broken = connection.execute(text("PRAGMA foreign_key_check")).all()
                assert not broken, f"the upgrade left {len(broken)} rows that refer to nothing"
            guards.install(connection)
            views.install(connection)
            tasks_sql.install(connection)
            connection.commit()
    return latest()


def alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", "herdsman.db:migrations")
    return config


@contextmanager
def _locked(connection: Connection) -> Generator[None]:
    """One upgrade at a time. SQLite's BEGIN IMMEDIATE is such a lock already."""
    match connection.dialect.name:
        case "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})"))
            yield
        case "mysql":
            wait = f"{LONGEST_REBUILDING.total_seconds():g}"
            if connection.execute(text(f"SELECT GET_LOCK('{LOCK}', {wait})")).scalar() != 1:
                raise StoreUnavailable(f"another upgrade has held the lock {LOCK} for {wait} s")
            try:
                yield
            finally:
                connection.execute(text(f"DO RELEASE_LOCK('{LOCK}')"))
        case _:
            yield


def _lift_limits(connection: Connection) -> None:
    """The limits are meant for the work of every day: an index over millions of rows takes longer.

    What is waited for without end is the work, and not the locks of others.
    """
    wait = LONGEST_REBUILDING.total_seconds()
    match connection.dialect.name:
        case "postgresql":
            connection.execute(text(f"SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {wait * 1000:.0f}"))
        case "mysql":
            driver: Any = connection.connection.driver_connection
            driver._read_timeout = _LONGEST_STATEMENT_S  # noqa: SLF001  (the driver has no other way)
            limits = f"max_statement_time = {_LONGEST_STATEMENT_S}, lock_wait_timeout = {wait:.0f}"
            connection.execute(text(f"SET SESSION {limits}, idle_transaction_timeout = 0"))
            connection.detach()  # so that nobody gets it afterwards, without its limits
        case _:
            pass
