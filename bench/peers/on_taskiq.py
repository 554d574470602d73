"""taskiq on Redis: no results, one task at a time, on uvloop as its own worker program runs.

Lists are what wakes its worker fastest, but a job that it has taken is lost with it.
"""
# pyright: basic, reportMissingImports=false

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvloop
from taskiq import AsyncBroker
from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker

Open = Callable[[str], AsyncBroker]


def fill(url: str, count: int, *, broker: Open = ListQueueBroker) -> None:
    with submitter(url, broker=broker) as submit:
        for _ in range(count):
            submit()


@contextmanager
def submitter(url: str, *, broker: Open = ListQueueBroker) -> Generator[Callable[[], object]]:
    async def noop() -> None: ...

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        opened = broker(url)
        task = opened.task("noop")(noop)
        runner.run(opened.startup())
        yield lambda: runner.run(task.kiq())
        runner.run(opened.shutdown())


def work(url: str, mark: Callable[[], None], *, broker: Open = ListQueueBroker) -> None:
    async def noop() -> None:
        mark()

    opened = broker(url)
    opened.task("noop")(noop)
    uvloop.run(run_receiver_task(opened, max_async_tasks=1, run_startup=True))
