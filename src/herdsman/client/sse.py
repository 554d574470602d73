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
        self._begun: list[bytes] = []
        """Pieces of a line whose end has not come; put together once, however small they are."""
        self._id: str | None = None
        self._data: list[str] = []
        self._data_size = self._size = 0
        self._moved = False

    def feed(self, chunk: bytes) -> Iterator[Event]:
        first, *others = chunk.split(b"\n")
        self._begin(first)
        for each in others:
            line, self._begun = b"".join(self._begun), []
            event = self._take(line.removesuffix(b"\r").decode(errors="replace"))
            if event is not None:
                yield event
            self._begin(each)

    def _begin(self, part: bytes) -> None:
        self._begun.append(part)
        self._size += len(part)
        if self._size > LARGEST_EVENT:
            raise TooLong

    def _take(self, line: str) -> Event | None:
        if line:
            self._field(line)
            return None
        event = Event(self._id, "\n".join(self._data)) if self._data or self._moved else None
        self._data, self._data_size, self._size, self._moved = [], 0, 0, False
        return event

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._data_size += len(value)
        elif name == "id" and "\0" not in value:
            self._id, self._moved = value, True
        elif not name:  # a comment, sent to keep the connection alive
            self._size = self._data_size
