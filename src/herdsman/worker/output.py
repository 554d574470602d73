"""Reads what a handler's process prints, always, so that it can never be held up by a full pipe."""

import os
import select
from collections.abc import Callable, Sequence
from threading import Lock, Thread

from herdsman.worker.logs import LONGEST_LINE, split_lines

Sink = Callable[[Sequence[str]], None]

_CHUNK = 65_536
_MOST_CHUNKS = 32


class Output:
    """A thread reads; the lines go to whoever's turn it is."""

    def __init__(self, pipe: int, spare: Sink) -> None:
        self._pipe = pipe
        self._spare = spare
        """For what is printed while no job runs."""
        self._sink = spare
        self._lock = Lock()
        self._unread = b""
        self._over = os.eventfd(0)
        os.set_blocking(pipe, False)
        self._thread = Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def turn_to(self, sink: Sink | None) -> None:
        """What was printed before this call goes to the one before."""
        with self._lock:
            self._drain()
            self._break_off()
            self._sink = sink or self._spare

    def close(self) -> None:
        self.turn_to(None)
        os.eventfd_write(self._over, 1)
        self._thread.join()
        os.close(self._over)
        os.close(self._pipe)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        poll.register(self._over, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._over in ready:
                return
            with self._lock:
                if not self._drain():
                    poll.unregister(self._pipe)

    def _drain(self) -> bool:
        """False once nobody can write any more. One that never stops writing does not hold up the others."""
        for _ in range(_MOST_CHUNKS):
            try:
                got = os.read(self._pipe, _CHUNK)
            except BlockingIOError:
                return True
            if not got:
                return False
            self._take(got)
        return True

    def _take(self, got: bytes) -> None:
        *lines, self._unread = (self._unread + got).split(b"\n")
        if lines:
            self._sink([piece for line in lines for piece in split_lines(_text(line))])
        if len(self._unread) > LONGEST_LINE:
            self._break_off()

    def _break_off(self) -> None:
        if self._unread:
            unread, self._unread = self._unread, b""
            self._sink(split_lines(_text(unread)))


def _text(line: bytes) -> str:
    return line.decode(errors="replace")
