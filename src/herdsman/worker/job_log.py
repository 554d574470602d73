"""What one attempt wrote and printed: capped, numbered, and kept until it was sent."""

import os
import select
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock, Thread

from herdsman.jobs.protocol import LogLines

LONGEST_LINE = 8_192
MOST_LINES = 10_000
MOST_BYTES = 1_048_576
PIECE_LINES = 1_000
PIECE_BYTES = 131_072
Sink = Callable[[Sequence[str]], None]
_CHUNK = 65_536
_MOST_CHUNKS = 32


@dataclass(slots=True, kw_only=True)
class LogBook:
    """The log of one attempt: lines come from one thread and leave with the heartbeats of another."""

    lines: int = MOST_LINES
    size: int = MOST_BYTES
    full: bool = field(default=False, init=False)
    unsent: list[str] = field(default_factory=list[str], init=False)
    _first: int = field(default=0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def add(self, lines: Sequence[str]) -> None:
        with self._lock:
            for line in lines:
                if self.full:
                    return
                self.size -= len(line.encode(errors="replace")) + 1
                written = self._first + len(self.unsent)
                self.full = self.size < 0 or written >= self.lines - 1
                self.unsent.append(f"log truncated after {written} lines: the rest was not kept" if self.full else line)

    def piece(self, lines: int = PIECE_LINES, size: int = PIECE_BYTES) -> LogLines | None:
        """The next lines that were not taken yet; None when there are none, or none fit."""
        with self._lock:
            taken: list[str] = []
            for line in self.unsent[:lines]:
                size -= len(line.encode(errors="replace"))
                if size < 0:
                    break
                taken.append(line)
            return LogLines(first=self._first, lines=tuple(taken)) if taken else None

    def taken(self, piece: LogLines) -> None:
        """The piece has arrived. An older one says nothing new."""
        with self._lock:
            gone = piece.first + len(piece.lines) - self._first
            if gone > 0:
                del self.unsent[:gone]
                self._first += gone


def split_lines(text: str) -> list[str]:
    """Pieces that fit; of a line that was written over and over, as progress bars do, only the last state."""
    shown = text.rstrip("\r").rpartition("\r")[2]
    return [shown[at : at + LONGEST_LINE] for at in range(0, len(shown), LONGEST_LINE)] or [""]


class Output:
    """Reads what a handler prints in a thread of its own, and passes the lines to the current sink."""

    def __init__(self, pipe: int, spare: Sink) -> None:
        """`spare` gets what is printed while no job runs."""
        self._pipe = pipe
        self._spare = self._sink = spare
        self._lock = Lock()
        self._unread = b""
        self._over = os.eventfd(0)
        os.set_blocking(pipe, False)
        self._thread = Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def turn_to(self, sink: Sink | None) -> None:
        """What was printed before this call goes to the one before."""
        with self._lock:
            self._drain(broken_off=True)
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

    def _drain(self, *, broken_off: bool = False) -> bool:
        """False once nobody can write any more. One that never stops writing does not hold up the others."""
        open_end = True
        for _ in range(_MOST_CHUNKS):
            try:
                got = os.read(self._pipe, _CHUNK)
            except BlockingIOError:
                break
            open_end = bool(got)
            if not got:
                break
            *lines, self._unread = (self._unread + got).split(b"\n")
            if len(self._unread) > LONGEST_LINE:
                lines, self._unread = [*lines, self._unread], b""
            self._pass_on(lines)
        if broken_off and self._unread:
            self._pass_on([self._unread])
            self._unread = b""
        return open_end

    def _pass_on(self, lines: Sequence[bytes]) -> None:
        if lines:
            self._sink([piece for line in lines for piece in split_lines(line.decode(errors="replace"))])
