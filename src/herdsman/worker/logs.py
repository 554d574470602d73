"""What one attempt wrote: capped, numbered, and kept until it was taken."""

from collections.abc import Sequence
from threading import Lock

from herdsman.core.work import LogLines

LONGEST_LINE = 8_192
MOST_LINES = 10_000
MOST_BYTES = 1_048_576
PIECE_LINES = 1_000
PIECE_BYTES = 131_072


class LogBook:
    """Lines come in from one thread and leave with the beats of another."""

    def __init__(self, *, lines: int = MOST_LINES, size: int = MOST_BYTES) -> None:
        self._lock = Lock()
        self._room, self._most = size, lines
        self._unsent: list[str] = []
        self._first = 0
        self._full = False

    @property
    def full(self) -> bool:
        return self._full

    def add(self, lines: Sequence[str]) -> None:
        with self._lock:
            for line in lines:
                if self._full:
                    return
                self._add(line)

    def piece(self, lines: int = PIECE_LINES, size: int = PIECE_BYTES) -> LogLines | None:
        """The next lines that were not taken yet; None when there are none, or none fit."""
        with self._lock:
            taken: list[str] = []
            for line in self._unsent[:lines]:
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
                del self._unsent[:gone]
                self._first += gone

    def _add(self, line: str) -> None:
        self._room -= len(line.encode(errors="replace")) + 1
        written = self._first + len(self._unsent)
        self._full = self._room < 0 or written >= self._most - 1
        self._unsent.append(
            f"log truncated after {written} lines: the rest was not kept" if self._full else line
        )


def split_lines(text: str) -> list[str]:
    """Pieces that fit; of a line that was written over and over, as progress bars do, only the last state."""
    shown = text.rstrip("\r").rpartition("\r")[2]
    return [shown[at : at + LONGEST_LINE] for at in range(0, len(shown), LONGEST_LINE)] or [""]
