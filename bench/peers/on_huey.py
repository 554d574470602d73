"""Huey on Redis: no results, one thread, and no scheduler for periodic tasks."""
# pyright: basic, reportMissingImports=false

from collections.abc import Callable, Generator
from contextlib import contextmanager

from huey import RedisHuey


def fill(url: str, count: int) -> None:
    with submitter(url) as submit:
        for _ in range(count):
            submit()


@contextmanager
def submitter(url: str) -> Generator[Callable[[], object]]:
    yield _task(_huey(url), lambda: None)


def work(url: str, mark: Callable[[], None]) -> None:
    huey = _huey(url)
    _task(huey, mark)
    huey.create_consumer(workers=1, periodic=False, check_worker_health=False).run()


def _huey(url: str) -> RedisHuey:
    return RedisHuey("bench", url=url, results=False)


def _task(huey: RedisHuey, handler: Callable[[], None]):
    return huey.task(name="noop")(handler)
