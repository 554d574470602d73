"""Turns signals into an orderly shutdown."""

import logging
import queue
import signal
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ShutdownCoordinator:
    """The first signal asks for an end, the second for an end at once.

    A handler runs in the middle of whatever the main thread does, perhaps with a lock in hand. So it does nothing
    but put the signal into a queue that is safe for that, and a thread of its own does the rest.
    """

    def __init__(self) -> None:
        self._triggered = threading.Event()
        self._hard = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: tuple[Callable[[], object], ...] = ()
        self._arrived: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._before: dict[int, Any] = {}
        self._thread: threading.Thread | None = None

    @property
    def triggered(self) -> bool:
        return self._triggered.is_set()

    @property
    def hard(self) -> bool:
        """It was asked for more than once: do not wait for anybody."""
        return self._hard.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._triggered.wait(timeout)

    def register(self, callback: Callable[[], object]) -> None:
        """Called at each trigger; at once when there has been one already."""
        with self._lock:
            self._callbacks = (*self._callbacks, callback)
        if self.triggered:
            _call(callback)

    def unregister(self, callback: Callable[[], object]) -> None:
        with self._lock:
            self._callbacks = tuple(each for each in self._callbacks if each != callback)

    def trigger(self) -> None:
        with self._lock:
            (self._hard if self._triggered.is_set() else self._triggered).set()
            callbacks = self._callbacks
        for callback in callbacks:
            _call(callback)

    def install(self, signals: Sequence[signal.Signals] = SIGNALS) -> bool:
        """Whether it did: Python hands signals to the main thread alone, and once is enough."""
        if self._thread is not None or threading.current_thread() is not threading.main_thread():
            return False
        self._thread = threading.Thread(target=self._listen, name="shutdown", daemon=True)
        self._thread.start()
        self._before = {
            each: signal.signal(each, lambda number, _frame: self._arrived.put(number)) for each in signals
        }
        return True

    def uninstall(self) -> None:
        if self._thread is None:
            return
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}
        self._arrived.put(None)
        self._thread.join()
        self._thread = None

    def __enter__(self) -> "ShutdownCoordinator":
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.uninstall()

    def _listen(self) -> None:
        while (number := self._arrived.get()) is not None:
            logger.info("%s: %s", signal.Signals(number).name, "ending now" if self.triggered else "ending")
            self.trigger()


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:  # one that fails must not keep the others from hearing of it
        logger.exception("a shutdown callback failed")
