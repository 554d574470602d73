"""PgQueuer on PostgreSQL, with asyncpg and uvloop as its own program runs; it logs what is done in a table.

A batch becomes as many tasks of one event loop. A handler that never waits still runs alone, so a batch does
not mean more than one job at a time here.
"""
# pyright: basic, reportMissingImports=false

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer, Queries

_MOST = 1000


def fill(url: str, count: int) -> None:
    uvloop.run(_fill(url, count))


async def _fill(url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for done in range(0, count, _MOST):
        size = min(_MOST, count - done)
        await queries.enqueue(["noop"] * size, [None] * size, [0] * size)
    await connection.execute("VACUUM ANALYZE")  # as on a table that has been there for a while
    await connection.close()


@contextmanager
def submitter(url: str) -> Generator[Callable[[], object]]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        connection = runner.run(asyncpg.connect(url))
        queries = Queries(AsyncpgDriver(connection))
        yield lambda: runner.run(queries.enqueue("noop", None))
        runner.run(connection.close())


def work(url: str, mark: Callable[[], None], **options: int) -> None:
    """`options` are those of its run: batch_size."""
    uvloop.run(_work(url, mark, **options))


async def _work(url: str, mark: Callable[[], None], **options: int) -> None:
    queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(url))

    @queue.entrypoint("noop")
    async def noop(_job: object) -> None:
        mark()

    await queue.run(**options)
