"""A limit on how long PostgreSQL is waited for: the server keeps its own limit, and a silent one keeps none."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

from sqlalchemy import Connection

SLACK = timedelta(seconds=5)
"""The server's own limit should strike first: it says what was wrong, and keeps the connection."""


def limit(connection: Connection, patience: timedelta | None) -> Any:
    """How long one statement is waited for from now on. The other drivers keep such a limit themselves."""
    driver: Any = connection.connection.driver_connection
    if hasattr(driver, "patience"):
        driver.patience = patience
    return driver


@contextmanager
def limited(connection: Connection, timeout: timedelta) -> Generator[None]:
    driver = limit(connection, timeout + SLACK)
    try:
        yield
    finally:
        if hasattr(driver, "patience"):
            driver.patience = None


def connect(_dialect: object, _record: object, arguments: Any, named: Any) -> Any:
    """How SQLAlchemy opens a connection whose patience can end."""
    return _patient().connect(*arguments, **named)


@cache
def _patient() -> Any:
    import psycopg  # noqa: PLC0415  (the driver is an extra)

    class Patient(psycopg.Connection[Any]):
        patience: timedelta | None = None

        def wait(self, gen: Any, *waiting: Any, **how: Any) -> Any:
            if self.patience is not None:
                gen = until(time.monotonic() + self.patience.total_seconds(), gen)
            return super().wait(gen, *waiting, **how)

    def until(deadline: float, steps: Any) -> Generator[Any, Any, Any]:
        """The driver takes the next step when there is news, and ten times a second when there is none."""
        try:
            wanted = next(steps)
            while True:
                news = yield wanted
                wanted = steps.send(news)
                if time.monotonic() > deadline:
                    # Without a code of the server's, which makes it the loss of the connection that it is.
                    raise psycopg.OperationalError("the server did not answer in time")
        except StopIteration as end:
            return end.value

    return Patient
