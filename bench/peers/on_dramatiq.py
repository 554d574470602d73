"""Dramatiq on Redis: no results, its usual middleware, one thread."""
# pyright: basic, reportMissingImports=false

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event

import dramatiq
from dramatiq.brokers.redis import RedisBroker


def fill(url: str, count: int) -> None:
    with submitter(url) as submit:
        for _ in range(count):
            submit()


@contextmanager
def submitter(url: str) -> Generator[Callable[[], object]]:
    yield _actor(RedisBroker(url=url), lambda: None).send


def work(url: str, mark: Callable[[], None]) -> None:
    broker = RedisBroker(url=url)
    _actor(broker, mark)
    dramatiq.Worker(broker, worker_threads=1).start()
    Event().wait()


def _actor(broker: RedisBroker, handler: Callable[[], None]):
    return dramatiq.actor(handler, broker=broker, actor_name="noop")
