"""Server-sent events, from bytes. What arrives in pieces, or twice after a break, is put in order here."""

from collections.abc import Iterator
from dataclasses import dataclass

LARGEST_EVENT = 1024 * 1024


class TooLong(Exception):
    """One event goes on and on: this is no stream of events."""


@dataclass(frozen=True, slots=True)
class Event:
    id: str | None
    data: str
    """Empty when only the id moved on: there was something, but nothing that was asked for."""


class Parser:
    def __init__(self) -> None:
        self._rest = b""
        self._id: str | None = None
        self._data: list[str] = []
        self._size = 0
        self._moved = False

    def feed(self, chunk: bytes) -> Iterator[Event]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._count(len(line))
            event = self._take(line.removesuffix(b"\r").decode(errors="replace"))
            if event is not None:
                yield event
        if self._size + len(self._rest) > LARGEST_EVENT:
            raise TooLong

    def _count(self, more: int) -> None:
        self._size += more
        if self._size > LARGEST_EVENT:
            raise TooLong

    def _take(self, line: str) -> Event | None:
        if line:
            self._field(line)
            return None
        event = Event(self._id, "\n".join(self._data)) if self._data or self._moved else None
        self._data, self._size, self._moved = [], 0, False
        return event

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id, self._moved = value, True
        elif not name:  # a comment, sent to keep the connection alive
            self._size = len("".join(self._data))
