"""Many at once: threads that begin together, and all of their answers."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")
LONGEST = timedelta(seconds=90)


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """`work(0)` to `work(count - 1)`, begun at the same moment; the first error is raised here."""
    ready = threading.Barrier(count)

    def begin(number: int) -> T:
        ready.wait()
        return work(number)

    with ThreadPoolExecutor(count) as threads:
        calls = [threads.submit(begin, number) for number in range(count)]
        return [call.result(timeout=LONGEST.total_seconds()) for call in calls]
