"""arq on Redis: no results kept, one job at a time.

At its own interval of half a second such a worker starts two jobs in a second, so it is measured with a
shorter one as well.
"""
# pyright: basic, reportMissingImports=false

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker


def fill(url: str, count: int) -> None:
    with flooder(url) as flood:
        flood(count)


@contextmanager
def submitter(url: str) -> Generator[Callable[[], object]]:
    with flooder(url) as flood:
        yield lambda: flood(1)


@contextmanager
def flooder(url: str) -> Generator[Callable[[int], object]]:
    """The event loop is entered once, as a program that submits many would."""
    with asyncio.Runner() as runner:
        pool = runner.run(create_pool(RedisSettings.from_dsn(url)))

        async def flood(count: int) -> None:
            for _ in range(count):
                await pool.enqueue_job("noop")

        yield lambda count: runner.run(flood(count))
        runner.run(pool.aclose())


def work(url: str, mark: Callable[[], None], *, poll_s: float = 0.5) -> None:
    async def noop(_context: object) -> None:
        mark()

    worker = Worker(
        [func(noop, name="noop")],
        redis_settings=RedisSettings.from_dsn(url),
        max_jobs=1,
        keep_result=0,
        poll_delay=poll_s,
    )
    worker.run()
