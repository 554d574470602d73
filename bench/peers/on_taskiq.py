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
    with flooder(url, broker=broker) as flood:
        flood(count)


@contextmanager
def submitter(url: str, *, broker: Open = ListQueueBroker) -> Generator[Callable[[], object]]:
    with flooder(url, broker=broker) as flood:
        yield lambda: flood(1)


@contextmanager
def flooder(url: str, *, broker: Open = ListQueueBroker) -> Generator[Callable[[int], object]]:
    """The event loop is entered once, as a program that submits many would."""

    async def noop() -> None: ...

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        opened = broker(url)
        task = opened.task("noop")(noop)
        runner.run(opened.startup())

        async def flood(count: int) -> None:
            for _ in range(count):
                await task.kiq()

        yield lambda count: runner.run(flood(count))
        runner.run(opened.shutdown())


def work(url: str, mark: Callable[[], None], *, broker: Open = ListQueueBroker) -> None:
    async def noop() -> None:
        mark()

    opened = broker(url)
    opened.task("noop")(noop)
    uvloop.run(run_receiver_task(opened, max_async_tasks=1, run_startup=True))
