"""Bring a database to the schema of this version."""

from collections.abc import Generator
from contextlib import contextmanager

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from herdsman.core.errors import StoreMisconfigured, StoreUnavailable
from herdsman.store import task_face, triggers, views
from herdsman.store.database import Database
from herdsman.store.revisions import current, known, latest, newer
from herdsman.store.server import inspect_server

LOCK = "herdsman_upgrade"
# Any number will do, as long as every version of Herdsman uses the same.
_LOCK_NUMBER = 0x6865726473
_LONGEST_WAIT_S = 60


def upgrade(database: Database) -> str:
    """Migrate and put guards, views and the tasks face in place; harmless to repeat, and safe when two do it at once."""
    inspect_server(database)
    with database.alone(rebuilding=True) as connection, _locked(connection):
        _refuse_newer(connection)
        config = alembic_config()
        config.attributes["connection"] = connection
        if current(connection) != latest():
            views.drop(connection)
            task_face.drop(connection)
        command.upgrade(config, "head")
        _check_references(connection)
        triggers.install(connection)
        views.install(connection)
        task_face.install(connection)
        connection.commit()
    return latest()


def _check_references(connection: Connection) -> None:
    """SQLite did not look while tables were replaced."""
    if connection.dialect.name == "sqlite":
        broken = connection.execute(text("PRAGMA foreign_key_check")).all()
        assert not broken, f"the upgrade left {len(broken)} rows that refer to nothing"


def _refuse_newer(connection: Connection) -> None:
    found = current(connection)
    if found is not None and found not in known():
        raise StoreMisconfigured(newer(found))


def alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", "herdsman.store:migrations")
    return config


@contextmanager
def _locked(connection: Connection) -> Generator[None]:
    """One upgrade at a time. SQLite's BEGIN IMMEDIATE is such a lock already."""
    match connection.dialect.name:
        case "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})"))
            yield
        case "mysql":
            asked = text(f"SELECT GET_LOCK('{LOCK}', {_LONGEST_WAIT_S})")
            if connection.execute(asked).scalar() != 1:
                raise StoreUnavailable(f"another upgrade has held the lock {LOCK} for {_LONGEST_WAIT_S} s")
            try:
                yield
            finally:
                connection.execute(text(f"DO RELEASE_LOCK('{LOCK}')"))
        case _:
            yield
