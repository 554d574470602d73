"""A1: the version counts the steps of a row, and nothing else moves it."""

import pytest
from sqlalchemy import text

from herdsman.context import Services
from herdsman.db.errors import Refused
from tests.support.builders import a_job


@pytest.mark.parametrize(
    "change",
    [
        "version = version + 1",
        "version = version - 1",
        "status = 'cancelled', finished_at = updated_at",
        "status = 'cancelled', finished_at = updated_at, version = version + 2",
    ],
)
def test_the_version_rises_by_one_with_each_step_and_never_without(services: Services, change: str) -> None:
    a_job(services)
    with pytest.raises(Refused, match="must raise version by one, and nothing else may"):
        services.database.transact(lambda tx: tx.execute(text(f"UPDATE job_states SET {change}")))
