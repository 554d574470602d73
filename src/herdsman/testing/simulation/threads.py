"""Time, threads and locks for programs that run in the world: what they wait for passes in its time."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from typing import Any

from herdsman.testing.simulation.scheduler import Process, Scheduler, Strand


@dataclass(frozen=True, slots=True)
class WorldClock:
    """Of `process`, or else of whoever asks: each process has its own, and only spans of it mean anything."""

    _scheduler: Scheduler
    _process: Process | None = None

    def monotonic(self) -> float:
        process = self._process or self._scheduler.current.process
        return self._scheduler.now + process.ahead

    def sleep(self, duration: timedelta) -> None:
        self._scheduler.sleep(duration.total_seconds())


class WorldEvent(Event):
    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._set = False
        self._waiting: list[Strand] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        for strand in self._waiting:
            self._scheduler.wake(strand)
        self._waiting.clear()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._scheduler.wait_among(self._waiting, timeout)
        return self._set


class WorldLock(AbstractContextManager[None]):
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = False
        self._waiting: deque[Strand] = deque()

    def __enter__(self) -> None:
        while self._held:
            self._waiting.append(self._scheduler.current)
            self._scheduler.wait()
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False
        while self._waiting:
            self._scheduler.wake(self._waiting.popleft())


class WorldLine(Executor):
    """Does what is handed in, one after the other."""

    def __init__(self, threads: "WorldThreads", name: str) -> None:
        self._tasks: deque[Callable[[], object]] = deque()
        self._threads = threads
        self._name = name
        self._busy = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._tasks.append(lambda: fn(*args, **kwargs))
        if not self._busy:
            self._busy = True
            self._threads.start(self._work, self._name)
        return Future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002  (the base says so)
        if cancel_futures:
            self._tasks.clear()

    def _work(self) -> None:
        while self._tasks:
            self._tasks.popleft()()
        self._busy = False


@dataclass(frozen=True, slots=True)
class WorldThreads:
    """The threads of one process."""

    _scheduler: Scheduler
    _process: Process

    def start(self, work: Callable[[], None], name: str) -> Strand:
        return self._scheduler.start(self._process, name, work)

    def event(self) -> Event:
        return WorldEvent(self._scheduler)

    def lock(self) -> AbstractContextManager[Any]:
        return WorldLock(self._scheduler)

    def line(self, name: str) -> Executor:
        return WorldLine(self, name)
