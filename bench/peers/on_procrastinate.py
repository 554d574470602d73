"""Procrastinate on PostgreSQL: its usual worker, woken by NOTIFY; done jobs stay in their table."""
# pyright: basic, reportMissingImports=false

from collections.abc import Callable, Generator
from contextlib import contextmanager

import psycopg
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector


def fill(url: str, count: int) -> None:
    app = App(connector=SyncPsycopgConnector(conninfo=url))
    with app.open():
        app.schema_manager.apply_schema()
        _task(app, lambda: None).batch_defer(*({} for _ in range(count)))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")  # as on a table that has been there for a while


@contextmanager
def submitter(url: str) -> Generator[Callable[[], object]]:
    app = App(connector=SyncPsycopgConnector(conninfo=url))
    with app.open():
        yield _task(app, lambda: None).defer


def work(url: str, mark: Callable[[], None]) -> None:
    app = App(connector=PsycopgConnector(conninfo=url))

    async def noop() -> None:
        mark()  # not in a thread, where a plain function would go

    _task(app, noop)
    app.run_worker(concurrency=1)


def _task(app: App, handler: Callable[[], object]):
    return app.task(name="noop")(handler)
