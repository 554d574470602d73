"""What a replica says, kept in the database: ENABLE_DB_LOGGING, DB_LOGGING_REQUIRED and how long."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import structlog
from sqlalchemy import text

from herdsman.context import Services
from herdsman.db.connection import Database, records
from herdsman.db.schema import system_logs
from herdsman.errors import StoreUnavailable
from herdsman.jobs.attempts_sql import LINES_KEPT
from herdsman.jobs.sweep import prune
from herdsman.server.wiring import stored_logs
from herdsman.settings import Settings, load_settings
from tests.support.databases import MovingClock
from tests.unit.test_settings_defaults import NOWHERE

KEPT = {"ENABLE_DB_LOGGING": "true", "ORCHESTRATOR_INSTANCE_ID": "replica-a", "LOG_LEVEL": "critical"}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def settings(**more: str) -> Settings:
    return load_settings({**KEPT, **more}, NOWHERE)


def stored(database: Database) -> list[dict[str, object]]:
    found = database.read(lambda tx: records(tx, system_logs.select().order_by(system_logs.c.id)))
    return [{name: row[name] for name in ("instance", "level", "event", "details")} for row in found]


@contextmanager
def without_the_table(database: Database) -> Generator[None]:
    """The next test gets the same database."""
    database.transact(lambda tx: tx.execute(text("ALTER TABLE system_logs RENAME TO elsewhere")).close())
    try:
        yield
    finally:
        database.transact(lambda tx: tx.execute(text("ALTER TABLE elsewhere RENAME TO system_logs")).close())


def test_log_lines_are_kept_in_the_database(database: Database) -> None:
    with stored_logs(settings(), database):
        structlog.get_logger().debug("unheard")
        structlog.get_logger().warning("odd", text="a\0b \ud800", size=3, many=["x"], long="y" * 5000)
    begun, odd = stored(database)
    assert (begun["event"], begun["level"]) == ("log.stored", "info")
    assert odd == {
        "instance": "replica-a",
        "level": "warning",
        "event": "odd",
        "details": {
            "text": "ab ?",
            "size": 3,
            "many": '["x"]',
            "long": "y" * 4096 + "...",
            "instance": "replica-a",
        },
    }


def test_nothing_is_kept_unless_it_is_asked_for(database: Database) -> None:
    with stored_logs(settings(ENABLE_DB_LOGGING="false"), database):
        structlog.get_logger().warning("odd")
    assert stored(database) == []


def test_they_are_kept_for_two_days(services: Services, clock: MovingClock) -> None:
    with stored_logs(settings(), services.database):
        pass
    clock.advance(LINES_KEPT - timedelta(minutes=1))
    prune(services)
    assert len(stored(services.database)) == 1
    clock.advance(timedelta(minutes=2))
    prune(services)
    assert stored(services.database) == []


def test_a_start_is_refused_where_lines_are_required_and_cannot_be_kept(database: Database) -> None:
    refused = stored_logs(settings(DB_LOGGING_REQUIRED="true"), database)
    said = r"DB_LOGGING_REQUIRED is set: .*system_logs"
    with without_the_table(database), pytest.raises(StoreUnavailable, match=said), refused:
        pytest.fail("it started")


def test_a_start_goes_on_where_they_are_only_wished_for(database: Database) -> None:
    with without_the_table(database), stored_logs(settings(), database):
        structlog.get_logger().warning("odd")
