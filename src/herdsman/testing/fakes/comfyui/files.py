"""The folders of the fake: input, output and temp. They are in memory, and large ones are made while they are read."""

import posixpath
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass

FOLDERS = ("input", "output", "temp")
CHUNK = 1024 * 1024


class Outside(Exception):
    """The name leads out of its folder."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is, in the words of ComfyUI."""

    filename: str
    subfolder: str = ""
    type: str = "output"

    def shown(self) -> dict[str, str]:
        return {"filename": self.filename, "subfolder": self.subfolder, "type": self.type}


@dataclass(frozen=True, slots=True)
class File:
    """`content`, or `length` bytes of a pattern that begins with it and is never held as a whole."""

    content: bytes
    length: int

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` up to `end`."""
        if len(self.content) == self.length:
            yield self.content[start:end]
            return
        chunk = (self.content * (CHUNK // len(self.content) + 1))[:CHUNK]
        while start < end:
            offset = start % CHUNK
            piece = chunk[offset : offset + end - start]
            yield piece
            start += len(piece)


class Files:
    """What lies in the folders. A restart wipes `temp` and nothing else."""

    def __init__(self) -> None:
        self._files: dict[Place, File] = {}
        self._lock = threading.Lock()

    def put(self, place: Place, content: bytes, length: int | None = None) -> None:
        """With a length, a large one that begins so."""
        with self._lock:
            self._files[place] = File(content, len(content) if length is None else length)

    def find(self, place: Place) -> File | None:
        with self._lock:
            return self._files.get(place)

    def remove(self, place: Place) -> None:
        with self._lock:
            self._files.pop(place, None)

    def wipe_temp(self) -> None:
        with self._lock:
            self._files = {place: file for place, file in self._files.items() if place.type != "temp"}

    def names(self, folder: str) -> list[str]:
        """As a workflow refers to them."""
        with self._lock:
            places = [place for place in self._files if place.type == folder]
        return sorted(posixpath.join(place.subfolder, place.filename) for place in places)

    def upload(self, place: Place, content: bytes, *, overwrite: bool) -> Place:
        """Under this name or, where other bytes have it already, under the next free one."""
        checked = inside(place)
        stem, extension = posixpath.splitext(checked.filename)
        with self._lock:
            number = 1
            taken = checked
            while not overwrite and taken in self._files and self._files[taken].content != content:
                taken = Place(f"{stem} ({number}){extension}", checked.subfolder, checked.type)
                number += 1
            self._files[taken] = File(content, len(content))
            return taken

    def next_place(self, prefix: str, folder: str, extension: str = "png") -> Place:
        """The next number under a prefix, which may hold folders."""
        checked = inside(Place(posixpath.basename(prefix), posixpath.dirname(prefix), folder))
        pattern = re.compile(re.escape(checked.filename) + r"_(\d+)_\..*")
        with self._lock:
            found = [
                pattern.fullmatch(place.filename)
                for place in self._files
                if (place.subfolder, place.type) == (checked.subfolder, folder)
            ]
        number = max((int(match[1]) for match in found if match), default=0) + 1
        return Place(f"{checked.filename}_{number:05}_.{extension}", checked.subfolder, folder)


def inside(place: Place) -> Place:
    """The same place, written shortly; `Outside` if it is not in its folder."""
    path = posixpath.normpath(posixpath.join(place.subfolder, place.filename))
    if path.startswith(("..", "/")) or posixpath.isabs(place.subfolder) or path == ".":
        raise Outside(path)
    return Place(posixpath.basename(path), posixpath.dirname(path), place.type)


def input_place(reference: str) -> Place:
    """A file as a workflow names it: `subfolder/name`, perhaps with the folder behind it in brackets."""
    match = re.fullmatch(r"(.*) \[(input|output|temp)\]", reference)
    path, folder = (match[1], match[2]) if match else (reference, "input")
    return Place(posixpath.basename(path), posixpath.dirname(path), folder)
