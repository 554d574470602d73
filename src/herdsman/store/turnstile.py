"""Who asks first is served first. The pool of connections lets whoever comes at the right moment overtake, for ever."""

import threading
from collections import deque


class Turnstile:
    """So many are inside at once; the others wait in a line."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._line: deque[threading.Event] = deque()
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        return len(self._line)

    def enter(self, timeout: float) -> bool:
        """False when no place became free in time. Who was let in leaves once."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Event()
            self._line.append(turn)
        return self._wait(turn, timeout)

    def leave(self) -> None:
        """A place goes to the first in the line; it is free only when nobody waits."""
        with self._lock:
            if self._line:
                self._line.popleft().set()
            else:
                self._free += 1

    def _wait(self, turn: threading.Event, timeout: float) -> bool:
        inside = False
        try:
            inside = turn.wait(timeout) or not self._stepped_out(turn)
            return inside
        finally:
            # After Ctrl-C: the place must not be kept for one who is gone.
            if not inside and not self._stepped_out(turn):
                self.leave()

    def _stepped_out(self, turn: threading.Event) -> bool:
        """False when the turn came at the last moment."""
        with self._lock:
            if turn in self._line:
                self._line.remove(turn)
            return not turn.is_set()
