"""An upgrade may lose power before any of its statements: the next one finishes it (S7)."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from herdsman.context import Services
from herdsman.db.checks import require_current
from herdsman.db.connection import Database
from herdsman.db.upgrade import upgrade
from herdsman.jobs.model import JobPolicy
from herdsman.server.wiring import new_job_id
from herdsman.states import JobStatus
from tests.support.amounts import SOAK
from tests.support.builders import a_job, replayed
from tests.support.databases import Backend, opened
from tests.support.power_cut import PowerCutError


@pytest.mark.parametrize("statement", [1, 2, 3, 5, 8, 13, 21, 34, 55] if SOAK else [1, 3, 8, 21, 55])
def test_s7_an_upgrade_that_was_cut_short_is_finished_by_the_next(backend: Backend, statement: int) -> None:
    url = backend.empty()
    with opened(url) as empty:
        cut_short_and_finished(empty, statement)
    backend.drop(url)


def cut_short_and_finished(empty: Database, statement: int) -> None:
    with power_cut_before(empty, statement), pytest.raises(PowerCutError):
        upgrade(empty)
    upgrade(empty)
    require_current(empty)
    services = Services(empty, JobPolicy(), new_job_id)
    assert replayed(services, a_job(services)) == JobStatus.PENDING


@contextmanager
def power_cut_before(database: Database, statement: int) -> Generator[None]:
    """Counted from the first one that changes something."""
    left = [statement]

    def count(*call: object) -> None:
        if str(call[2]).lstrip().upper().startswith(("CREATE", "INSERT", "UPDATE")):
            left[0] -= 1
            if left[0] == 0:
                raise PowerCutError

    event.listen(database.engine, "before_cursor_execute", count)
    try:
        yield
    finally:
        event.remove(database.engine, "before_cursor_execute", count)
