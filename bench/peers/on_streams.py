"""Redis streams alone: XADD, XREADGROUP, XACK, and nothing around them. Who sends jobs through them cannot be faster.

One by one every command waits for its answer. Together, so many entries go in one pipeline, are read by one
command, and are confirmed by one.
"""
# pyright: basic, reportMissingImports=false

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from redis import Redis

_STREAM, _GROUP = "bench", "readers"
_ENTRY: dict[Any, Any] = {"job_id": "01J0000000000000000000000", "type": "noop"}
_WAIT_MS = 5_000


def fill(url: str, count: int) -> None:
    with flooder(url) as flood:
        flood(count)


@contextmanager
def submitter(url: str) -> Generator[Callable[[], object]]:
    with Redis.from_url(url) as redis:
        yield lambda: redis.xadd(_STREAM, _ENTRY)


@contextmanager
def flooder(url: str, *, together: int = 1) -> Generator[Callable[[int], None]]:
    with Redis.from_url(url) as redis:

        def flood(count: int) -> None:
            for done in range(0, count, together):
                _add(redis, min(together, count - done))

        yield flood


def _add(redis: Redis, count: int) -> None:
    if count == 1:
        redis.xadd(_STREAM, _ENTRY)
        return
    pipeline = redis.pipeline(transaction=False)
    for _ in range(count):
        pipeline.xadd(_STREAM, _ENTRY)
    pipeline.execute()


def work(url: str, mark: Callable[[], None], *, together: int = 1) -> None:
    with Redis.from_url(url) as redis:
        redis.xgroup_create(_STREAM, _GROUP, id="0", mkstream=True)
        while True:
            read: Any = redis.xreadgroup(_GROUP, "reader", {_STREAM: ">"}, together, _WAIT_MS)
            for _, entries in read or ():
                for _ in entries:
                    mark()
                redis.xack(_STREAM, _GROUP, *(entry_id for entry_id, _ in entries))
