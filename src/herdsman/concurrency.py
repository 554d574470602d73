"""Callers on the event loop that wait for what one thread brings them."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Condition, Lock, Thread
from typing import Any, Generic, TypeVar, cast

from herdsman.ports import Clock

T = TypeVar("T")
R = TypeVar("R")
W = TypeVar("W", bound="Waiter[Any]")
Gone = Callable[[], Awaitable[object]]
"""Returns when the caller has hung up."""


@dataclass(eq=False, slots=True, kw_only=True)
class Waiter(Generic[R]):
    """Made on the event loop of its caller."""

    answer: asyncio.Future[R] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    outcome: R | Exception | None = None
    """What the caller is told, from the moment that it is `done`: a little before the caller hears of it."""
    done: bool = False
    serving: bool = False
    """A round is under way for it."""
    last: bool = False
    """It is answered after the next round, whatever that brings."""


class WaitQueue(ABC, Generic[W, R]):
    """Safe to share between tasks and threads. The thread starts with the first caller, and ends with `stop`.

    A subclass says who is served next and how; the methods that it has to write are called while `_news` is held,
    but for `_serve` and `_take_back`, which run in the thread alone.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._news = Condition()
        self._rung = 0
        self._returned: deque[R] = deque()
        self._told: dict[asyncio.AbstractEventLoop, list[W]] = {}
        """Those who are answered with the next turn of their event loop: one call of it for all."""
        self._thread: Thread | None = None
        self._stopped = False

    @property
    @abstractmethod
    def waiting(self) -> int: ...

    def wake(self) -> None:
        """There may be something for those who wait."""
        with self._news:
            self._rung += 1
            self._news.notify()

    def stop(self) -> None:
        """Everybody who waits is answered, and what nobody received is given back."""
        with self._news:
            self._stopped = True
            self._news.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    @abstractmethod
    def _waiters(self) -> Iterable[W]: ...

    @abstractmethod
    def _add(self, waiter: W) -> None: ...

    @abstractmethod
    def _remove(self, waiter: W) -> None:
        """May be called for one that is not in the queue."""

    @abstractmethod
    def _nothing(self, waiter: W) -> R:
        """The answer to a caller for whom nothing was found."""

    @abstractmethod
    def _next(self, *, timed_out: bool) -> Sequence[W]:
        """Who is served now; `timed_out` says that the pause is over, and that nobody woke this queue."""

    @abstractmethod
    def _pause(self) -> float | None:
        """How many seconds to wait for news when nobody is served."""

    @abstractmethod
    def _serve(self, batch: Sequence[W]) -> None:
        """Answers them with `_finish`, or leaves them waiting."""

    @abstractmethod
    def _take_back(self, result: R) -> None:
        """The caller was gone before it heard of it."""

    async def _wait(self, waiter: W, wait: timedelta | None, gone: Gone) -> R:
        """The answer, or nothing after `wait`. What a caller gets who is `gone` is given back."""
        with self._news:
            if self._stopped:
                return self._nothing(waiter)
            self._add(waiter)
            self._start()
        leaving = asyncio.ensure_future(gone())
        leaving.add_done_callback(lambda _: self._leave(waiter, hung_up=True))
        timer = None
        if wait is not None:
            timer = waiter.answer.get_loop().call_later(wait.total_seconds(), self._leave, waiter)
        try:
            result = await waiter.answer
        except asyncio.CancelledError:
            self._leave(waiter, hung_up=True)
            if not isinstance(waiter.outcome, Exception):
                self._give_back(cast("R", waiter.outcome))
            raise
        finally:
            leaving.cancel()
            if timer is not None:
                timer.cancel()
        if leaving.done() and not leaving.cancelled():
            self._give_back(result)
            return self._nothing(waiter)
        return result

    def _leave(self, waiter: W, *, hung_up: bool = False) -> None:
        """Its time is over. A round that is under way for it is waited for: it may have brought something."""
        with self._news:
            if waiter.serving and not hung_up:
                waiter.last = True
            elif not waiter.done:
                self._finish(waiter, self._nothing(waiter))

    def _give_back(self, result: R) -> None:
        with self._news:
            self._returned.append(result)
            self._start()
            self._news.notify()

    def _finish(self, waiter: W, outcome: R | Exception) -> None:
        self._remove(waiter)
        waiter.outcome, waiter.done = outcome, True
        loop = waiter.answer.get_loop()
        told = self._told.setdefault(loop, [])
        told.append(waiter)
        if len(told) == 1:
            try:
                loop.call_soon_threadsafe(self._tell, loop)
            except RuntimeError:  # it has ended, and nobody waits there any more
                del self._told[loop]

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._news:
            told = self._told.pop(loop)
        for waiter in told:
            if waiter.answer.done():
                continue
            if isinstance(waiter.outcome, Exception):
                waiter.answer.set_exception(waiter.outcome)
            else:
                waiter.answer.set_result(waiter.outcome)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        timed_out = False
        while True:
            with self._news:
                returned, batch = [*self._returned], self._next(timed_out=timed_out)
                self._returned.clear()
                if not (returned or batch):
                    if self._stopped:
                        for waiter in [*self._waiters()]:
                            self._finish(waiter, self._nothing(waiter))
                        self._thread = None
                        return
                    timed_out = not self._news.wait(self._pause())
                    continue
            timed_out = False
            for each in returned:
                self._take_back(each)
            if batch:
                self._serve(batch)


FRESH_S = 0.5
SHARE = 20
"""A slow read is repeated less often: at most this fraction of the time is spent on reading."""


@dataclass
class TtlCache(Generic[T]):
    """Keeps what was read for a while. One caller reads, and the others wait for it: they want to know the same."""

    look: Callable[[], T]
    clock: Clock
    _turn: Lock = field(default_factory=Lock)
    _found: T | None = None
    _until: float = 0.0

    def get(self) -> T:
        with self._turn:
            began = self.clock.monotonic()
            if self._found is None or began >= self._until:
                self._found = self.look()
                took = self.clock.monotonic() - began
                self._until = began + max(FRESH_S, SHARE * took)
            return self._found


class LatestValue(Generic[T]):
    """Reads a value at most every `fresh_s` seconds. Thread-safe: one thread reads, the others use the last value.

    They wait only while there is none yet. `read` is given the last value.
    """

    def __init__(self, read: Callable[[T | None], T], clock: Clock, fresh_s: float) -> None:
        self._read, self._clock, self._fresh_s = read, clock, fresh_s
        self._reading = Lock()
        self._last: T | None = None
        self._next = 0.0

    def __call__(self) -> T:
        last = self._last
        if last is not None and (self._clock.monotonic() < self._next or not self._reading.acquire(blocking=False)):
            return last
        if last is None:
            self._reading.acquire()
        try:
            self._next = self._clock.monotonic() + self._fresh_s
            found = self._last = self._read(self._last)
        finally:
            self._reading.release()
        return found

    def drop(self) -> None:
        """It has changed: the next call reads it again."""
        self._next = 0.0
