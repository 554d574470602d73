"""The socket between a supervisor and its handler's process: JSON, one message per line."""

import json
import os
import select
import socket
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, cast

from herdsman.worker.context import Cancelled, TryAgain, UserError

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


LONGEST_WORD = 16 * 1024 * 1024


class Channel:
    """Nothing reads in the background: whoever wants to know looks, so no thread of ours lives beside a handler."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._owner = os.getpid()
        self._sending = Lock()
        self._reading = Lock()
        self._unread = bytearray()
        self._orders: list[Any] = []
        self._replies: dict[int, Any] = {}
        self._cancelled: dict[str, str] = {}
        """Which, and why."""
        self._asked = 0
        self._run = 0

    def next_order(self) -> Any:
        """Waits for the next jobs; None when the supervisor has hung up."""
        self._leave_forks()
        with self._reading:
            while not self._orders:
                if not self._read():
                    return None
            order = self._orders.pop(0)
        self._run, self._cancelled = order["run"], {}
        return order

    def send(self, word: Mapping[str, object]) -> None:
        line = json.dumps({"run": self._run, **word}, allow_nan=False).encode() + b"\n"
        if len(line) > LONGEST_WORD:
            raise UserError(f"one answer has {len(line):,} bytes, the limit is {LONGEST_WORD:,}")
        with self._sending:
            self._connection.sendall(line)

    def answer(self, job_id: str, word: Mapping[str, object]) -> None:
        self._leave_forks()
        self.send({"job": job_id, **word})

    def tell(self, job_id: str, word: Mapping[str, object]) -> None:
        self.send({"job": job_id, **word})

    def ask(self, job_id: str, word: Mapping[str, object]) -> Any:
        with self._reading:
            self._asked += 1
            number = self._asked
            self.send({"job": job_id, "ask": number, **word})
            while number not in self._replies:
                if not self._read():
                    raise Cancelled("the supervisor has gone")
            return value_of(self._replies.pop(number))

    def cancelled(self, job_id: str) -> bool:
        """One that waits for an answer reads for all of us."""
        if self._reading.acquire(blocking=False):
            try:
                while select.select([self._connection], [], [], 0)[0]:
                    if not self._read():
                        return True
            finally:
                self._reading.release()
        return job_id in self._cancelled

    def why_stopped(self, job_id: str) -> str | None:
        return self._cancelled.get(job_id)

    def _read(self) -> bool:
        got = self._connection.recv(_CHUNK)
        self._unread += got
        if b"\n" in got:  # an order may be large, and is looked through once
            *lines, self._unread = self._unread.split(b"\n")
            for line in lines:
                self._take(json.loads(line))
        return bool(got)

    def _take(self, word: Any) -> None:
        if "cancel" in word:
            if word["run"] == self._run:
                self._cancelled.setdefault(word["cancel"], word.get("why", ""))
        elif "reply" in word:
            self._replies[word["reply"]] = word
        else:
            self._orders.append(word)

    def _leave_forks(self) -> None:
        """A fork of the handler that comes back here would run our jobs a second time."""
        if os.getpid() != self._owner:
            os._exit(0)


def value_of(reply: Any) -> Any:
    match reply.get("error"):
        case None:
            return reply.get("value")
        case {"kind": "refused", "said": said}:
            raise ValueError(said)
        case {"said": said}:
            raise TryAgain(f"the queue could not be reached: {said}")
        case _:
            raise TryAgain("the queue could not be reached")
