"""A replica is ready only while its database also takes writes: one with a full disk can still be read."""

from collections.abc import Mapping
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from herdsman.access.authenticator import Keyring, require_same_pepper
from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.errors import StoreUnwritable
from herdsman.jobs.model import JobPolicy
from herdsman.server import readiness as ready
from herdsman.server.readiness import FINE, Readiness
from herdsman.server.wiring import new_job_id
from tests.contract.test_sqlite_faults import limit_pages
from tests.support.builders import a_job
from tests.support.databases import Backend, opened

WELL = {"loops": FINE, "database": FINE, "writes": FINE}
ONLY_READS = {
    "SQLite": "PRAGMA query_only = ON",
    "PostgreSQL": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "MariaDB": "SET SESSION TRANSACTION READ ONLY",
}
READS_AND_WRITES = {
    "SQLite": "PRAGMA query_only = OFF",
    "PostgreSQL": "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "MariaDB": "SET SESSION TRANSACTION READ WRITE",
}


def tell_session(database: Database, words: Mapping[str, str]) -> None:
    """In the only connection there is, outside of a transaction of ours."""
    with database.engine.connect() as only:
        plain: Any = only.connection
        plain.cursor().execute(words[database.backend])
        plain.commit()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a new one, and its answer is waited for."""
    monkeypatch.setattr(ready, "FRESH_S", -1.0)
    monkeypatch.setattr(ready, "WRITE_FRESH_S", -1.0)
    monkeypatch.setattr(ready, "WRITE_PATIENCE_S", 10.0)


def test_a_database_that_can_only_be_read_is_not_ready(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "REFUSED_LATELY", timedelta(0))  # what follows is found by the look alone
    with opened(url, pool_size=1) as database:
        require_same_pepper(database, Keyring(pepper=b"p" * 32))
        readiness = Readiness(database, Event())
        assert readiness.checks() == WELL
        tell_session(database, ONLY_READS)
        checks = readiness.checks()
        assert checks["database"] == FINE
        assert checks["writes"].startswith("the database takes no writes now")
        tell_session(database, READS_AND_WRITES)
        assert readiness.checks() == WELL


def test_a_disk_that_has_room_for_small_writes_only_is_not_ready(sqlite: Backend) -> None:
    with opened(sqlite.fresh()) as database:
        services = Services(database, JobPolicy(), new_job_id)
        require_same_pepper(database, Keyring(pepper=b"p" * 32))
        readiness = Readiness(database, Event())
        limit_pages(database, 4)
        with pytest.raises(StoreUnwritable):
            a_job(services, payload="x" * 100_000)
        assert "refused a write" in readiness.checks()["writes"]


def test_writers_that_stand_in_line_do_not_make_a_replica_unready(
    sqlite: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready, "WRITE_PATIENCE_S", 0.0)
    with opened(sqlite.fresh()) as database:
        readiness = Readiness(database, Event())
        assert readiness.checks()["database"] == FINE  # it has seen the schema, which takes the line too
        with database.alone():
            assert readiness.checks() == WELL
