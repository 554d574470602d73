"""Calls that come at the same time are done together, in one thread."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from threading import Lock
from typing import Generic, TypeVar

from herdsman.core.errors import TooMany

T = TypeVar("T")
R = TypeVar("R")

_SOON = timedelta(seconds=1)


class Gatherer(Generic[T, R]):
    """No timer: a round takes what arrived while the last one ran, so that a lone call waits for nobody."""

    def __init__(
        self,
        work: Callable[[Sequence[T]], Sequence[R | Exception]],
        *,
        most: int = 200,
        room: int = 10_000,
        name: str = "gatherer",
    ) -> None:
        """`work` answers each item by itself, in order; what it raises is the answer to all of them."""
        self._work = work
        self._most = most
        self._room = room
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._lock = Lock()
        self._queue: deque[tuple[T, Future[R]]] = deque()
        self._busy = False

    async def call(self, item: T) -> R:
        """`TooMany` when so many wait that the answer would come too late; nothing was done then (J10)."""
        answer: Future[R] = Future()
        with self._lock:
            if len(self._queue) >= self._room:
                raise TooMany(f"{self._room} requests are waiting already: send it again", retry_after=_SOON)
            self._queue.append((item, answer))
            idle, self._busy = not self._busy, True
        if idle:
            self._thread.submit(self._drain)
        return await asyncio.wrap_future(answer)

    def close(self) -> None:
        """What is waiting is still done; it was asked for."""
        self._thread.shutdown()

    def _drain(self) -> None:
        while batch := self._next():
            self._round(batch)

    def _next(self) -> list[tuple[T, Future[R]]]:
        with self._lock:
            taken = [self._queue.popleft() for _ in range(min(self._most, len(self._queue)))]
            self._busy = bool(taken)
        return taken

    def _round(self, batch: Sequence[tuple[T, Future[R]]]) -> None:
        # A call that was given up before its turn is left out; one that has begun is done to its end.
        calls = [(item, answer) for item, answer in batch if answer.set_running_or_notify_cancel()]
        if not calls:
            return
        try:
            results = self._work([item for item, _ in calls])
            assert len(results) == len(calls), f"{len(results)} answers to {len(calls)} calls"
        except Exception as error:  # noqa: BLE001  (whatever it is, it belongs to those who called)
            results = [error] * len(calls)
        for (_, answer), result in zip(calls, results, strict=True):
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)
