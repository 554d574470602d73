"""Ctrl-C and SIGTERM, as programs that run until they are told to stop hear them."""

import signal
from queue import SimpleQueue
from threading import Event, Thread


class Stopping(Event):
    """Set by the first Ctrl-C; the next ones are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        # A handler that took a lock could wait for itself, when a second signal comes while it has it.
        signals: SimpleQueue[int] = SimpleQueue()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _frame: signals.put(number))
        Thread(target=self._listen, args=(signals,), name="signals", daemon=True).start()

    def _listen(self, signals: "SimpleQueue[int]") -> None:
        while signals.get():
            self.asked += 1
            self.set()
