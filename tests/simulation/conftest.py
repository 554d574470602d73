"""The programs of a world log as they do in production; here only its story counts."""

from collections.abc import Generator

import pytest
import structlog

from herdsman.telemetry.logs import configure_logs


@pytest.fixture(autouse=True)
def quiet_logs() -> Generator[None]:
    before = structlog.get_config()
    configure_logs("CRITICAL", "json")
    yield
    structlog.configure(**before)
