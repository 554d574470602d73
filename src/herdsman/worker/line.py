"""The supervisor's end of the line to a handler's process, which is not trusted: it may be silent, deaf or lie."""

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, cast

LONGEST_ANSWER = 16 * 1024 * 1024
_CHUNK = 64 * 1024
"""More would cost fresh memory from the kernel with every word, and most words are short."""
_MOST_CHUNKS = 64


class Line:
    """Neither reading nor writing ever waits."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        self._connection = connection
        self._lock = Lock()
        self._unsent = bytearray()
        self._unread = bytearray()
        self.open = True

    @property
    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def waiting(self) -> bool:
        """Whether there are words that it has not taken yet."""
        return bool(self._unsent)

    def send(self, word: bytes) -> None:
        with self._lock:
            self._unsent += word + b"\n"
        self.write()

    def write(self) -> None:
        with self._lock:
            try:
                while self._unsent:
                    sent = self._connection.send(self._unsent)
                    del self._unsent[:sent]
            except BlockingIOError:
                return
            except OSError:  # it has gone; how it went is seen elsewhere
                self._unsent.clear()

    def read(self) -> list[Mapping[str, Any]]:
        lines: list[bytes | bytearray] = []
        for _ in range(_MOST_CHUNKS):
            got = self._receive()
            if not got:
                break
            self._unread += got
            if b"\n" in got:
                *whole, rest = self._unread.split(b"\n")
                lines += whole
                self._unread = bytearray(rest)
            if len(self._unread) > LONGEST_ANSWER:
                self._unread, self.open = bytearray(), False
                return [{"nonsense": f"one answer had more than {LONGEST_ANSWER:,} bytes"}]
            if len(got) < _CHUNK:
                break
        return [answer for line in lines if (answer := _parse(line)) is not None]

    def hang_up(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        with self._lock:
            self.open = False
            self._unsent.clear()
            self._connection.close()

    def _receive(self) -> bytes | None:
        if not self.open:
            return None
        try:
            got = self._connection.recv(_CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            got = b""
        self.open = bool(got)
        return got


def _parse(line: bytes | bytearray) -> Mapping[str, Any] | None:
    """A line that is no answer is none."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("Mapping[str, Any]", answer) if isinstance(answer, dict) else None
